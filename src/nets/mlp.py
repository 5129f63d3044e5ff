"""A multi-layer perceptron."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

NORMS = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm, "none": None}
ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "tanh": nn.Tanh}


class MLP(nn.Module):
    """Linear layers with norm, activation and dropout between them; every input is flattened first.

    Args:
        num_classes: number of outputs K, at least 1.
        num_features: number of values of one sample, D.
        widths: units of each hidden layer; an empty list gives a linear model.
        norm: normalisation before the activation.
        activation: non-linearity of the hidden layers.
        dropout: probability of dropping a hidden unit, in [0, 1).

    Shapes:
        x (B, …) with D values per sample → logits (B, K).

    Raises:
        ValueError: a count is below 1, or dropout is outside [0, 1).
    """

    def __init__(
        self,
        num_classes: int = 10,
        num_features: int = 64,
        widths: Sequence[int] = (128, 128),
        norm: Literal["batch", "layer", "none"] = "batch",
        activation: Literal["relu", "gelu", "silu", "tanh"] = "relu",
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        if min(num_classes, num_features, *widths) < 1:
            raise ValueError(
                f"num_classes, num_features, widths: expected counts of at least 1, "
                f"got {num_classes}, {num_features}, {list(widths)}"
            )
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected a probability in [0, 1), got {dropout}")
        layers: list[nn.Module] = []
        for d_in, d_out in zip([num_features, *widths], widths, strict=False):
            layers.append(nn.Linear(d_in, d_out, bias=norm != "batch"))  # a batch norm subtracts it again
            if (norm_class := NORMS[norm]) is not None:
                layers.append(norm_class(d_out))
            layers += [ACTIVATIONS[activation](), nn.Dropout(dropout)]
        self.hidden = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1] if widths else num_features, num_classes)
        for module in self.modules():  # Glorot & Bengio 2010 for tanh, He et al. 2015 for the ReLU family
            if isinstance(module, nn.Linear):
                if activation == "tanh" or module is self.head:
                    nn.init.xavier_normal_(module.weight)
                else:
                    nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)  # (B, D)
        x = self.hidden(x)  # (B, widths[-1])
        return self.head(x)  # (B, K)
