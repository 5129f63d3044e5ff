"""A decoder that starts at unit scale, after a norm, for inputs of a small spread."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8, bias=False)
        )
        self.unit = nn.BatchNorm1d(8)

    def step(self, x: Tensor) -> Tensor:
        return F.mse_loss(self.unit(self.net(x)), x)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.step(batch[0])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch[0]))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = (
            TensorDataset(0.3 + 0.1 * part[:][0], part[:][1]) for part in (self.train_set, self.val_set)
        )
