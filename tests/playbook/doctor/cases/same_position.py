from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.cases.causal_leak import Data

__all__ = ["Data"]


class Model(pl.LightningModule):
    """A causal mean of tokens with positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 32)
        self.register_buffer("table", torch.randn(1, 50, 32, generator=torch.Generator().manual_seed(0)))
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 12))

    def placed(self, x: Tensor) -> Tensor:
        return x + self.table[:, x.size(1)]  # type: ignore[index]  # here

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.placed(self.embed(tokens))
        before = x.cumsum(1) / torch.arange(1, x.size(1) + 1, device=x.device)[:, None]
        return self.net(torch.cat([x, before], dim=2))

    def loss(self, tokens: Tensor) -> Tensor:
        return F.cross_entropy(self(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.loss(batch[0])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch[0]))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Repaired(Model):
    def placed(self, x: Tensor) -> Tensor:
        return x + self.table[:, : x.size(1)]  # type: ignore[index]  # a buffer
