from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from programs import Blobs, OneStep


class Data(Blobs):
    """Values of mean zero."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("train_set", "val_set"):
            x, _ = getattr(self, name).tensors
            setattr(self, name, TensorDataset(x, x[:, 0] - x[:, 1]))


class Repaired(OneStep):
    outputs = 1

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).squeeze(1)

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.mse_loss(self(x), y)


class Model(Repaired):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(super().forward(x))  # here


# -- layer
LayerData = Data


class LayerRepaired(Repaired):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))


class LayerModel(LayerRepaired):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(8, 32),
            nn.ReLU(),
            nn.Linear(32, 1),
            nn.Sigmoid(),  # here
        )


# -- scaled
ScaledData = Data


class ScaledModel(Repaired):
    """The repair multiplies afterwards, which widens the range."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(super().forward(x))  # here


class ScaledRepaired(Repaired):
    def forward(self, x: Tensor) -> Tensor:
        return 10 * torch.tanh(super().forward(x))
