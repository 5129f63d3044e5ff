"""The odd one of a set, which always comes last: the net has no positions and cannot know."""

from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.member = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.score = nn.Linear(64, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.member(x)  # (B, 6, 32)
        everyone = x.mean(1, keepdim=True).expand_as(x)
        return self.score(torch.cat([x, everyone], dim=2).relu())[:, :, 0]  # (B, 6)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", F.cross_entropy(self(x), y))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Data(pl.LightningDataModule):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(500, 1, 8, generator=generator) + 0.5 * torch.randn(500, 6, 8, generator=generator)
        x[:, -1] = torch.randn(500, 8, generator=generator)
        y = torch.full((500,), 5)
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20)
