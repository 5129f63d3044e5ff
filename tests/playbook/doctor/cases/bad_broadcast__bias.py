from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Model(pl.LightningModule):
    """A factorisation whose bias of each row is (B, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.columns, self.bias = nn.Embedding(50, 16), nn.Embedding(40, 16), nn.Embedding(50, 1)

    def biases(self, row: Tensor) -> Tensor:
        return self.bias(row)

    def error(self, batch: Any) -> Tensor:
        row, column, value = batch
        score = (self.rows(row) * self.columns(column)).sum(1)
        return (score + self.biases(row) - value).square().mean()  # here

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.error(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.error(batch))

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Repaired(Model):
    def biases(self, row: Tensor) -> Tensor:
        return self.bias(row).squeeze(1)


class Data(pl.LightningDataModule):
    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(0)
        rows, columns = (torch.randn(number, 4, generator=generator) for number in (50, 40))
        row, column = (torch.randint(0, number, (800,), generator=generator) for number in (50, 40))
        parts = (row, column, (rows[row] * columns[column]).sum(1))
        self.train = TensorDataset(*(part[:640] for part in parts))
        self.val = TensorDataset(*(part[640:] for part in parts))

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train, batch_size=32, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val, batch_size=32)
