"""A residual network for short trainings on small images."""

from torch import Tensor, nn


class ResNet9(nn.Module):
    """Nine layers that learn small images in minutes (after Page 2018, winner of DAWNBench on CIFAR-10).

    A stem is followed by three stages that widen and pool. The first and the last stage end in a residual pair of
    convolutions.

    Args:
        num_classes: number of classes K, at least 1.
        in_channels: 1 for grey images, 3 for RGB.
        width: channels of the stem, at least 1; the stages have 2, 4 and 8 times as many. Page uses 64.
        logit_scale: factor of the logits, above 0. A small factor keeps the first predictions uncertain.

    Shapes:
        image (B, in_channels, H, W), H and W at least 8 → logits (B, K).

    Raises:
        ValueError: a count is below 1, or the scale is not above 0.
    """

    def __init__(
        self, num_classes: int = 10, in_channels: int = 3, width: int = 64, logit_scale: float = 0.125
    ) -> None:
        super().__init__()
        for name, count in {"num_classes": num_classes, "in_channels": in_channels, "width": width}.items():
            if count < 1:
                raise ValueError(f"{name}: expected at least 1, got {count}")
        if not logit_scale > 0:
            raise ValueError(f"logit_scale: expected above 0, got {logit_scale}")
        self.logit_scale = logit_scale
        self.stem = _conv(in_channels, width)
        self.stages = nn.Sequential(
            nn.Sequential(_pooled(width, 2 * width), _Residual(2 * width)),
            _pooled(2 * width, 4 * width),
            nn.Sequential(_pooled(4 * width, 8 * width), _Residual(8 * width)),
        )
        self.head = nn.Linear(8 * width, num_classes, bias=False)
        for module in self.modules():  # He et al. 2015: keeps the variance through ReLU
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, image: Tensor) -> Tensor:
        x = self.stages(self.stem(image))  # (B, 8 C, H / 8, W / 8)
        return self.head(x.amax(dim=(2, 3))) * self.logit_scale  # (B, K)


class _Residual(nn.Module):
    """Two convolutions with a shortcut around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.pair = nn.Sequential(_conv(width, width), _conv(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pair(x)


def _conv(c_in: int, c_out: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(c_in, c_out, 3, padding=1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU())


def _pooled(c_in: int, c_out: int) -> nn.Sequential:
    # pooled before the norm, which then has a quarter of the values
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1, bias=False), nn.MaxPool2d(2), nn.BatchNorm2d(c_out), nn.ReLU()
    )
