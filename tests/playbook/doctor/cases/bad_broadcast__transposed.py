from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Repaired(OneStep):
    """Predicts a number for every sensor of a sample: (B, 8, 3) to (B, 8, 1)."""

    outputs = 1
    turned = False

    def __init__(self) -> None:
        super().__init__()
        self.net[0] = torch.nn.Linear(3, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).transpose(1, 2) if self.turned else self.net(x)

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return (self(x) - y).abs().mean()  # here


class Model(Repaired):
    turned = True


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(500, 8, 3)
        y = x.sum(dim=2, keepdim=True) / 3**0.5
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])
