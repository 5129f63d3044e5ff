"""The smallest training that means something: a straight line through points."""

from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Line(pl.LightningModule):
    """Fits y = w x + b; everything is logged under Lightning's usual names."""

    def __init__(self, lr: float = 0.1) -> None:
        super().__init__()
        self.net = nn.Linear(1, 1)
        self.lr = lr

    def _error(self, batch: Sequence[Tensor]) -> Tensor:
        x, y = batch
        return (self.net(x) - y).square().mean()

    def training_step(self, batch: Sequence[Tensor], batch_idx: int) -> Tensor:
        loss = self._error(batch)
        self.log("train/loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: Sequence[Tensor], batch_idx: int) -> None:
        self.log("val/loss", self._error(batch))

    def test_step(self, batch: Sequence[Tensor], batch_idx: int) -> None:
        self.log("test/loss", self._error(batch))

    def predict_step(self, batch: Sequence[Tensor], batch_idx: int) -> Tensor:
        return self.net(batch[0])[:, 0]

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.lr)


def points(num: int = 8, batch_size: int = 4) -> DataLoader:
    """Points of y = 2 x + 1."""
    x = torch.linspace(-1, 1, num)[:, None]
    return DataLoader(TensorDataset(x, 2 * x + 1), batch_size=batch_size)


class Points(pl.LightningDataModule):
    """The same everywhere."""

    def train_dataloader(self) -> DataLoader:
        return points()

    def val_dataloader(self) -> DataLoader:
        return points()

    def test_dataloader(self) -> DataLoader:
        return points()

    def predict_dataloader(self) -> DataLoader:
        return points()


def line(weight: float = 0.0, bias: float = 0.0, lr: float = 0.1) -> Line:
    """The module with these parameters."""
    module = Line(lr)
    module.net.weight.data.fill_(weight)
    module.net.bias.data.fill_(bias)
    return module
