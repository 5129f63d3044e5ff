from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Positions(nn.Module):
    """For sequences (T, B, D)."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(100, 1, 32, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table[: x.size(0), :]  # type: ignore[index]  # here


class Model(pl.LightningModule):
    """A forecast by attention over a series, to which positions for sequences (T, B, D) are added as (B, T, D)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(1, 32)
        self.positions = Positions()
        self.net = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.last = nn.Linear(32, 1)

    def placed(self, x: Tensor) -> Tensor:
        return self.positions(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.net(self.placed(self.first(x)))[:, -1])

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return F.mse_loss(self(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", F.mse_loss(self(x), y))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Repaired(Model):
    def placed(self, x: Tensor) -> Tensor:
        return self.positions(x.transpose(0, 1)).transpose(0, 1)


class Data(pl.LightningDataModule):
    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(0)
        start = 6.3 * torch.rand(640, 1, generator=generator)
        waves = torch.sin(start + 0.5 * torch.arange(13)) + 0.05 * torch.randn(640, 13, generator=generator)
        x, y = waves[:, :12, None], waves[:, 12:]
        self.train, self.val = TensorDataset(x[:512], y[:512]), TensorDataset(x[512:], y[512:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train, batch_size=32, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val, batch_size=32)
