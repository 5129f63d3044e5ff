from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.cases.causal_leak import Data as Longer


class Model(pl.LightningModule):
    """A decoder that cuts its last input itself; there are as many classes as elements in a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 32)
        self.net = nn.GRU(32, 32, batch_first=True)
        self.out = nn.Linear(32, 12)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.net(self.embed(tokens[:, :-1]))[0])

    def loss(self, tokens: Tensor) -> Tensor:
        return F.cross_entropy(self(tokens).flatten(0, 1), tokens[:, 1:].flatten())

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.loss(batch[0])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch[0]))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Data(Longer):
    """Of 12 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = (TensorDataset(part[:][0][:, :12]) for part in (self.train_set, self.val_set))
