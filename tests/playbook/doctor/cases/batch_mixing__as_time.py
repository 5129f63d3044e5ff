from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data

__all__ = ["Data"]


class Model(pl.LightningModule):
    """Reads the samples of a batch, which come in random order, as one sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.GRU(8, 32, batch_first=True)
        self.last = nn.Linear(32, 3)

    def scores(self, x: Tensor) -> Tensor:
        return self.last(self.net(x.unsqueeze(0))[0])  # here

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(x).squeeze()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", F.cross_entropy(self(x), y))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Repaired(Model):
    def scores(self, x: Tensor) -> Tensor:
        return self.last(self.net(x.unsqueeze(1))[0])
