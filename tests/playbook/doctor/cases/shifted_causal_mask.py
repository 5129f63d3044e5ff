from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.cases.causal_leak import Data

__all__ = ["Data"]


class Model(pl.LightningModule):
    """A block of attention with a cache, in which a piece of text sees only the beginning of what came before."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 32)
        self.place = nn.Embedding(32, 32)
        self.qkv = nn.Linear(32, 96)
        self.out = nn.Linear(32, 12)

    def forward(self, tokens: Tensor, past: Any = None) -> Any:
        filled = 0 if past is None else past[0].shape[1]
        x = self.embed(tokens) + self.place(torch.arange(filled, filled + tokens.shape[1], device=tokens.device))
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=1), torch.cat([past[1], v], dim=1)
        scores = q @ k.transpose(1, 2) / 32**0.5
        scores = scores.masked_fill(~self.seen(q, k), -torch.inf)
        return self.out(x + scores.softmax(-1) @ v), (k, v)

    def seen(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).tril()  # here

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (tokens,) = batch
        logits, _ = self(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


class Repaired(Model):
    def seen(self, q: Tensor, k: Tensor) -> Tensor:
        num, length = q.shape[1], k.shape[1]
        return torch.ones(num, length, dtype=torch.bool, device=q.device).tril(length - num)
