from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Model(pl.LightningModule):
    """Predicts the next token; the convolution looks to both sides."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 16)
        self.conv = nn.Conv1d(16, 16, 3, padding=1)  # here
        self.out = nn.Linear(16, 12)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens).transpose(1, 2)
        x = self.conv(x)
        return self.out(x.transpose(1, 2))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (tokens,) = batch
        return F.cross_entropy(self(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(16, 16, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.conv(F.pad(self.embed(tokens).transpose(1, 2), (2, 0)))
        return self.out(x.transpose(1, 2))


class Data(pl.LightningDataModule):
    """Numbers that go up by one or two."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        steps = torch.randint(1, 3, (300, 14), generator=generator)
        tokens = (torch.randint(0, 12, (300, 1), generator=generator) + steps.cumsum(1)) % 12
        self.train_set, self.val_set = TensorDataset(tokens[:240]), TensorDataset(tokens[240:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20)
