"""A small convolutional network for images."""

from collections.abc import Sequence

from torch import Tensor, nn


class CNN(nn.Module):
    """3×3 convolutions, halving the resolution at every stage, then global average pooling.

    Args:
        num_classes: number of classes K, at least 1.
        widths: channels of each stage, one entry per stage.
        in_channels: 1 for grey images, 3 for RGB.
        dropout: probability of dropping a feature before the classifier, in [0, 1).

    Shapes:
        image (B, in_channels, H, W), H and W at least 2 ** len(widths) → logits (B, K).

    Raises:
        ValueError: there is no stage, a count is below 1, or dropout is outside [0, 1).
    """

    def __init__(
        self, num_classes: int = 10, widths: Sequence[int] = (32, 64), in_channels: int = 1, dropout: float = 0.1
    ) -> None:
        super().__init__()
        if not widths:
            raise ValueError("widths: expected at least one stage, got none")
        if min(num_classes, in_channels, *widths) < 1:
            raise ValueError(
                f"num_classes, in_channels, widths: expected counts of at least 1, "
                f"got {num_classes}, {in_channels}, {list(widths)}"
            )
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a probability in [0, 1), got {dropout}")
        inputs = [in_channels, *widths[:-1]]
        self.stages = nn.Sequential(*[_stage(c_in, c_out) for c_in, c_out in zip(inputs, widths, strict=True)])
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(widths[-1], num_classes))
        for module in self.modules():  # He et al. 2015: keeps the variance through ReLU
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, image: Tensor) -> Tensor:
        x = self.stages(image)  # (B, C, H / 2^S, W / 2^S)
        x = x.mean(dim=(2, 3))  # (B, C)
        return self.head(x)  # (B, K)


def _stage(c_in: int, c_out: int) -> nn.Sequential:
    # no bias: the norm subtracts it again
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU(), nn.MaxPool2d(2)
    )
