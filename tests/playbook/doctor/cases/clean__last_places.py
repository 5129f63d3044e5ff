"""A recommender: histories end at the last place, zeros stand in front and are hidden, and places are counted."""

from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.cases.shifted_causal_mask__padding import Data

__all__ = ["Data"]


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.item, self.place = nn.Embedding(12, 32, padding_idx=0), nn.Embedding(14, 32)
        nn.init.normal_(self.item.weight, std=0.05)
        layer = nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, nn.LayerNorm(32), enable_nested_tensor=False)

    def forward(self, items: Tensor) -> Tensor:
        x = self.item(items) + self.place(torch.arange(items.shape[1], device=items.device))
        hidden = torch.ones(items.shape[1], items.shape[1], dtype=torch.bool, device=items.device).triu(1)
        itself = torch.eye(items.shape[1], dtype=torch.bool, device=items.device)
        hidden = hidden | ((items == 0)[:, None] & ~itself)
        x = self.encoder(x, mask=hidden.repeat_interleave(2, dim=0))
        return x @ self.item.weight.T

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (items,) = batch
        return F.cross_entropy(self(items[:, :-1]).flatten(0, 1), items[:, 1:].flatten(), ignore_index=0)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)
