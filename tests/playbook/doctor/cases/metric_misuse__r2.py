from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.functional import r2_score


class Model(pl.LightningModule):
    """Logs R² of each batch; a batch of the validation, in the order of its values, has hardly any variance."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).squeeze(1)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return F.mse_loss(self(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        y_hat = self(x)
        self.log("val_loss", F.mse_loss(y_hat, y))
        self.score(y_hat, y)

    def score(self, y_hat: Tensor, y: Tensor) -> None:
        self.log("val_r2", r2_score(y_hat, y))  # here

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Repaired(Model):
    def score(self, y_hat: Tensor, y: Tensor) -> None:
        self.log("val_mae", F.l1_loss(y_hat, y))


class Data(pl.LightningDataModule):
    def setup(self, stage: str) -> None:
        x = torch.randn(600, 4, generator=torch.Generator().manual_seed(0))
        y = x.sum(1)
        order = y[500:].argsort()
        self.train, self.val = TensorDataset(x[:500], y[:500]), TensorDataset(x[500:][order], y[500:][order])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val, batch_size=20)
