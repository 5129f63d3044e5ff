from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, OneStep


class Repaired(OneStep):
    """An autoencoder of single frames, of which none depends on another."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 4), nn.GELU(), nn.Linear(4, 8))

    def step(self, batch: Any) -> Tensor:
        return F.mse_loss(self(batch[0]), batch[0])  # here


class Model(Repaired):
    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.GRU(8, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.memory(x)[0])


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        waves = torch.randn(500, 16, 8).cumsum(dim=1) / 3
        self.train_set, self.val_set = TensorDataset(waves[:400]), TensorDataset(waves[400:])
