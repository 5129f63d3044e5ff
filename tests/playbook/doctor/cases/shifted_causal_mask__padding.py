from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.cases.shifted_causal_mask import Repaired as Whole


class Model(Whole):
    """Padding stands in front, where the causal mask does not hide it."""

    def forward(self, tokens: Tensor) -> Any:
        real = tokens != 0
        x = self.embed(tokens) + self.place((real.cumsum(1) - 1).clamp(min=0))
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / 32**0.5
        scores = scores.masked_fill(~(self.seen(q, k) & self.shown(real)), -torch.inf)
        return self.out(x + scores.softmax(-1) @ v)  # here

    def shown(self, real: Tensor) -> Tensor:
        return torch.ones_like(real)[:, None]

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (tokens,) = batch
        return F.cross_entropy(self(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)


class Repaired(Model):
    def shown(self, real: Tensor) -> Tensor:
        return real[:, None] | torch.eye(real.shape[1], dtype=torch.bool, device=real.device)


class Data(pl.LightningDataModule):
    """Numbers from 1 to 11 that go up by one or two, 4 to 14 of them, behind zeros."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        steps = torch.randint(1, 3, (300, 14), generator=generator)
        tokens = 1 + (torch.randint(0, 11, (300, 1), generator=generator) + steps.cumsum(1)) % 11
        lengths = torch.randint(4, 15, (300, 1), generator=generator)
        tokens = tokens.masked_fill(torch.arange(14) < 14 - lengths, 0)
        self.train_set, self.val_set = TensorDataset(tokens[:240]), TensorDataset(tokens[240:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20)
