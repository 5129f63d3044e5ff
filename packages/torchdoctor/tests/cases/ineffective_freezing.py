from typing import Any

import torch
from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Repaired(Classifier):
    """Trains the head alone."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 3)
        self.freeze()

    def freeze(self) -> None:
        for weight in self.net.parameters():
            weight.requires_grad = False

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.net(x))


class Model(Repaired):
    def freeze(self) -> None:
        for weight in self.net.parameters():
            weight.require_grad = False  # here


# -- module
ModuleData = Blobs


class ModuleRepaired(Repaired):
    def freeze(self) -> None:
        self.net.requires_grad_(False)


class ModuleModel(Repaired):
    def freeze(self) -> None:
        self.net.requires_grad = False  # here


# -- beside
BesideData = Blobs


class Gate(nn.Module):
    """Has an option of this name, which is its own."""

    def __init__(self, requires_grad: bool) -> None:
        super().__init__()
        self.requires_grad = requires_grad  # type: ignore[assignment]
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.scale if self.requires_grad else self.scale + 0.0)


class BesideRepaired(Repaired):
    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate(requires_grad=False)

    def forward(self, x: Tensor) -> Any:
        return self.gate(super().forward(x))


class BesideModel(BesideRepaired):
    def freeze(self) -> None:
        self.net.requires_grad = False  # here
