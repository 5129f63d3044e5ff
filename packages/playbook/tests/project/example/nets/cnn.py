"""A small convolutional network."""

from collections.abc import Sequence

from torch import Tensor, nn


class CNN(nn.Module):
    """Stages of a convolution, batch norm, ReLU and pooling, then a mean over the image.

    Args:
        num_classes: number of classes K.
        widths: channels of each stage.
        in_channels: channels of an image.
        dropout: probability of dropping a feature before the classifier, in [0, 1).

    Shapes:
        image (B, in_channels, H, W) → logits (B, K).
    """

    def __init__(
        self, num_classes: int = 10, widths: Sequence[int] = (32, 64), in_channels: int = 1, dropout: float = 0.1
    ) -> None:
        super().__init__()
        if not widths:
            raise ValueError("widths: expected at least one stage, got none")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a probability in [0, 1), got {dropout}")
        self.stages = nn.Sequential()
        for c_in, c_out in zip([in_channels, *widths], widths, strict=False):
            convolution = nn.Conv2d(c_in, c_out, 3, padding=1, bias=False)
            self.stages.append(nn.Sequential(convolution, nn.BatchNorm2d(c_out), nn.ReLU(), nn.MaxPool2d(2)))
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(widths[-1], num_classes))

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.stages(image).mean(dim=(2, 3)))  # (B, K)
