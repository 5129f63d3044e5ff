"""A perceptron with one hidden layer."""

from torch import Tensor, nn


class Perceptron(nn.Module):
    """Linear, ReLU, linear, on flattened images.

    Args:
        num_classes: number of classes K.
        in_features: pixels of an image, channels × height × width.
        width: units of the hidden layer.

    Shapes:
        image (B, …) → logits (B, K).
    """

    def __init__(self, num_classes: int = 10, in_features: int = 64, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(in_features, width), nn.ReLU(), nn.Linear(width, num_classes))

    def forward(self, image: Tensor) -> Tensor:
        return self.layers(image.flatten(1))  # (B, K)
