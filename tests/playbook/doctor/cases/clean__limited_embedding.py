from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.cases.causal_leak import Data

__all__ = ["Data"]


class Model(pl.LightningModule):
    """The rows of its embedding are shortened wherever they are read, in validation too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 32, max_norm=1.0)
        self.net = nn.GRU(32, 32, batch_first=True)
        self.out = nn.Linear(32, 12)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.net(self.embed(tokens))[0])

    def loss(self, tokens: Tensor) -> Tensor:
        return F.cross_entropy(self(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.loss(batch[0])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch[0]))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)
