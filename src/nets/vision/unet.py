"""The U-Net (Ronneberger et al. 2015), with batch norms and an output of the image's size."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import pad


class UNet(nn.Module):
    """Encoder and decoder with a skip connection at every resolution (Ronneberger et al. 2015).

    Unlike in the paper, convolutions are padded, so that the output has the size of the image, and followed by batch
    norms. The paper's widths are 64, 128, 256, 512 and 1024.

    Args:
        num_classes: number of classes K, at least 1.
        widths: channels of each level, from the finest to the coarsest; each has half the resolution of the one before.
        in_channels: 1 for grey images, 3 for RGB.

    Shapes:
        image (B, in_channels, H, W) → logits (B, K, H, W). If 2 ** (len(widths) - 1) does not divide H or W, the last
        row and column of the image are repeated as padding.

    Raises:
        ValueError: there is no level, or a count is below 1.
    """

    def __init__(self, num_classes: int = 2, widths: Sequence[int] = (32, 64, 128, 256), in_channels: int = 3) -> None:
        super().__init__()
        if not widths:
            raise ValueError("widths: expected at least one level, got none")
        if min(num_classes, in_channels, *widths) < 1:
            raise ValueError(
                f"num_classes, in_channels, widths: expected counts of at least 1, "
                f"got {num_classes}, {in_channels}, {list(widths)}"
            )
        fine, coarse = widths[:-1], widths[1:]
        self.encoder = nn.ModuleList(_Level(c_in, c) for c_in, c in zip([in_channels, *fine], widths, strict=True))
        pairs = list(zip(fine, coarse, strict=True))[::-1]  # from the coarsest to the finest
        self.up = nn.ModuleList(nn.ConvTranspose2d(c_coarse, c, 2, stride=2) for c, c_coarse in pairs)
        self.decoder = nn.ModuleList(_Level(2 * c, c) for c, _ in pairs)
        self.head = nn.Conv2d(widths[0], num_classes, 1)
        self._initialise()

    def _initialise(self) -> None:
        """Ronneberger et al. 2015: variance 2 / N for N inputs before a ReLU, 1 / N elsewhere."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                num_in = module.in_channels * module.kernel_size[0] * module.kernel_size[1]
                nn.init.normal_(module.weight, std=((1 if module is self.head else 2) / num_in) ** 0.5)
            elif isinstance(module, nn.ConvTranspose2d):  # its windows do not overlap: every output has one pixel's
                nn.init.normal_(module.weight, std=module.in_channels**-0.5)
        for layer in (self.head, *self.up):
            nn.init.zeros_(layer.get_parameter("bias"))

    def forward(self, image: Tensor) -> Tensor:
        height, width = image.shape[-2:]
        step = 2 ** len(self.up)
        missing = [0, -width % step, 0, -height % step]  # left, right, top, bottom
        x = pad(image, missing, mode="replicate") if any(missing) else image
        levels: list[Tensor] = []
        for level in self.encoder:
            x = level(nn.functional.max_pool2d(x, 2) if levels else x)  # (B, C_l, H / 2^l, W / 2^l)
            levels.append(x)
        for up, level, fine in zip(self.up, self.decoder, levels[-2::-1], strict=True):
            x = level(torch.cat([fine, up(x)], dim=1))  # (B, C_l, H / 2^l, W / 2^l)
        x = self.head(x)
        return x[..., :height, :width].contiguous() if any(missing) else x  # (B, K, H, W), no view: FSDP2 warns of them


class _Level(nn.Sequential):
    """Two 3×3 convolutions, each with its norm and ReLU."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__(
            nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),  # no bias: the norm subtracts it again
            nn.BatchNorm2d(c_out),
            nn.ReLU(),
            nn.Conv2d(c_out, c_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(),
        )
