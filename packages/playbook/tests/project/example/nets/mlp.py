"""A perceptron with hidden layers."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

NORMS = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm, "none": nn.Identity}


class MLP(nn.Module):
    """Linear layers on flattened inputs, each hidden one with a norm, ReLU and dropout.

    Args:
        num_classes: number of outputs K, at least 1.
        in_features: values in an input, D.
        widths: units of each hidden layer.
        norm: normalisation of the hidden layers.
        dropout: probability of dropping a hidden unit, in [0, 1).

    Shapes:
        x (B, …) with D values per sample → logits (B, K).
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_features: int = 64,
        widths: Sequence[int] = (128, 128),
        norm: Literal["batch", "layer", "none"] = "batch",
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        if min(num_classes, in_features, *widths) < 1:
            raise ValueError(f"widths: expected units of at least 1, got {list(widths)}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a probability in [0, 1), got {dropout}")
        sizes = [in_features, *widths]
        self.hidden = nn.Sequential()
        for d_in, d_out in zip(sizes, widths, strict=False):
            linear = nn.Linear(d_in, d_out, bias=norm != "batch")
            self.hidden.extend([linear, NORMS[norm](d_out), nn.ReLU(), nn.Dropout(dropout)])
        self.head = nn.Linear(sizes[-1], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(x.flatten(1)))  # (B, K)
