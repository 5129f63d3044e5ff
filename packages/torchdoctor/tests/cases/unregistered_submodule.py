from typing import Any

import torch
from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.heads = {"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)}  # here

    def forward(self, x: Tensor) -> Tensor:
        x = self.net(x)
        return self.heads["a"](x) + self.heads["b"](x)


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleDict(self.heads)


# -- optimized
OptimizedData = Blobs


class OptimizedRepaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.scale: Tensor = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) * self.scale


class OptimizedModel(OptimizedRepaired):
    """Gives its optimizer a tensor that no checkpoint has."""

    def __init__(self) -> None:
        super().__init__()
        del self.scale
        self.scale = torch.ones(3, requires_grad=True)  # here

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW([*self.parameters(), self.scale], lr=1e-3)


# -- tensor
TensorData = Blobs


class TensorModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.ones(3, requires_grad=True)  # here

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) * self.scale


class TensorRepaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) * self.scale
