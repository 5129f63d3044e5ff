from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Repaired(Classifier):
    """A function at every point of a field; a batch is one field."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 16), nn.GELU(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.movedim(1, -1)).movedim(-1, 1)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return mse_loss(self(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class Model(Repaired):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.movedim(1, -1))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return mse_loss(self(x), y)  # here


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(200, 1, 12, 12, generator=torch.Generator().manual_seed(0))
        self.train_set, self.val_set = TensorDataset(x[:160], x[:160] ** 2), TensorDataset(x[160:], x[160:] ** 2)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=1, shuffle=True)
