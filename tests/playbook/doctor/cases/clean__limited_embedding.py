from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Model(pl.LightningModule):
    """The rows of its embedding are shortened wherever they are read, in validation too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(400, 32, max_norm=1.0)
        self.out = nn.Linear(32, 2)

    def forward(self, words: Tensor) -> Tensor:
        return self.out(self.embed(words).mean(1))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        words, label = batch
        return F.cross_entropy(self(words), label)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Data(pl.LightningDataModule):
    """Texts of six words, whose label tells from which half of the vocabulary most of them come."""

    def setup(self, stage: str) -> None:
        words = torch.randint(0, 400, (600, 6), generator=torch.Generator().manual_seed(0))
        label = ((words < 200).sum(1) > 3).long()
        self.train, self.val = TensorDataset(words[:500], label[:500]), TensorDataset(words[500:], label[500:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val, batch_size=20)
