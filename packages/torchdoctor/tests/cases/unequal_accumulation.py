from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from cases import no_supervised_tokens


class Model(no_supervised_tokens.Model):
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


# -- manual
ManualData = Data
TOGETHER = 4


class ManualModel(no_supervised_tokens.Model):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.manual_backward(self.loss(batch) / TOGETHER)
        if (batch_idx + 1) % TOGETHER == 0:
            optimizer: Any = self.optimizers()
            optimizer.step()
            optimizer.zero_grad()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    def loss(self, batch: Any) -> Tensor:
        tokens, labels = batch
        losses = F.cross_entropy(self(tokens).transpose(1, 2), labels, reduction="none")  # here
        return losses.sum() / self.divisor(labels)

    def divisor(self, labels: Tensor) -> Any:
        return (labels != -100).sum()


class ManualRepaired(ManualModel):
    def divisor(self, labels: Tensor) -> Any:
        return 40
