"""A plain convolutional network that learns small images with few operations."""

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d


class Airbench(nn.Module):
    """Seven layers on whitened patches (after Jordan 2024, "94% on CIFAR-10 in 3.29 seconds on a single GPU").

    The stem splits every 2 × 2 patch into brightness, colours and their edges, and BatchNorm scales each to variance 1.
    This is close to the whitening that Jordan computes from the data. Three stages of two convolutions follow. An image
    takes about a third of the operations of a ResNet9 with as many channels.

    Args:
        num_classes: number of classes K, at least 1.
        in_channels: 1 for grey images, 3 for RGB.
        width: channels of the first stage, at least 1; the other two have 4 times as many. Jordan uses 64.
        logit_scale: factor of the logits, above 0. A small factor keeps the first predictions uncertain.

    Shapes:
        image (B, in_channels, H, W), H and W at least 9 → logits (B, K).

    Raises:
        ValueError: a count is below 1, or the scale is not above 0.
    """

    def __init__(
        self, num_classes: int = 10, in_channels: int = 3, width: int = 64, logit_scale: float = 1 / 9
    ) -> None:
        super().__init__()
        for name, count in {"num_classes": num_classes, "in_channels": in_channels, "width": width}.items():
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        if not logit_scale > 0:
            raise ValueError(f"logit_scale: expected above 0, got {logit_scale}")
        self.logit_scale = logit_scale
        patches = 8 * in_channels
        self.stem = nn.Sequential(_Patches(in_channels), nn.BatchNorm2d(patches), nn.GELU())
        self.stages = nn.Sequential(_stage(patches, width), _stage(width, 4 * width), _stage(4 * width, 4 * width))
        self.head = nn.Linear(4 * width, num_classes, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.dirac_(module.weight[: module.in_channels])  # begins as the identity, as far as channels allow

    def forward(self, image: Tensor) -> Tensor:
        x = self.stages(self.stem(image))  # (B, 4 C, H / 8, W / 8)
        return self.head(x.amax(dim=(2, 3))) * self.logit_scale  # (B, K)


class _Patches(nn.Module):
    """Components of every 2 × 2 patch of (B, C, H, W), and their negatives: (B, 8 C, H - 1, W - 1).

    The basis is made of cosines over the channels times sums and differences over the pixels. It is close to the
    principal components of natural images in general (Ruderman et al. 1998, for colours).
    """

    basis: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        k, c = torch.arange(channels)[:, None], torch.arange(channels) + 0.5
        colours = torch.cos(torch.pi / channels * k * c)  # (C, C)
        colours = colours / colours.norm(dim=1, keepdim=True)
        pair = torch.tensor([[1.0, 1.0], [1.0, -1.0]]) / 2**0.5
        edges = torch.einsum("iy,jx->ijyx", pair, pair).flatten(0, 1)  # (4, 2, 2)
        basis = torch.einsum("kc,eyx->kecyx", colours, edges).flatten(0, 1)  # (4 C, C, 2, 2)
        self.register_buffer("basis", torch.cat([basis, -basis]))

    def forward(self, image: Tensor) -> Tensor:
        return conv2d(image, self.basis)


def _stage(c_in: int, c_out: int) -> nn.Sequential:
    def conv(c_in: int) -> nn.Conv2d:
        return nn.Conv2d(c_in, c_out, 3, padding=1, bias=False)

    # pooled before the norm, which then has a quarter of the values
    first = [conv(c_in), nn.MaxPool2d(2), nn.BatchNorm2d(c_out), nn.GELU()]
    return nn.Sequential(*first, conv(c_out), nn.BatchNorm2d(c_out), nn.GELU())
