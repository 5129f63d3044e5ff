from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from tests.playbook.doctor.cases.no_supervised_tokens import Model as Recurrent


class Model(Recurrent):
    def configure_callbacks(self) -> Any:
        return [GradientAccumulationScheduler({0: 4})]

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        tokens, labels = batch
        return F.cross_entropy(self(tokens).flatten(0, 1), labels.flatten())  # here


class Repaired(Model):
    """On average over the steps, not within each."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        tokens, labels = batch
        return F.cross_entropy(self(tokens).flatten(0, 1), labels.flatten(), reduction="sum") / 40


class Data(pl.LightningDataModule):
    """Sentences of 3 to 40 tokens that count on, two a batch."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.rows = []
        for _ in range(120):
            length, start = (int(torch.randint(3, 40, (1,), generator=generator)) for _ in range(2))
            self.rows.append((start + torch.arange(length + 1)) % 40)

    @staticmethod
    def collate(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
        tokens = pad_sequence([row[:-1] for row in rows], batch_first=True)
        return tokens, pad_sequence([row[1:] for row in rows], batch_first=True, padding_value=-100)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.rows[:100], batch_size=2, shuffle=True, collate_fn=self.collate)  # type: ignore[arg-type]

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.rows[100:], batch_size=2, collate_fn=self.collate)  # type: ignore[arg-type]
