"""A LightningModule and a LightningDataModule that know nothing of Playbook."""

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Module(pl.LightningModule):
    """A regression that calls zero_grad nowhere: manual optimization whose gradients add up."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x).squeeze(1), y)
        self.manual_backward(loss)
        optimizer: Any = self.optimizers()
        optimizer.step()
        self.log("train_loss", loss)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Data(pl.LightningDataModule):
    """A noisy linear function of eight features."""

    def setup(self, stage: str | None = None) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(512, 8, generator=generator)
        y = x @ torch.linspace(-1, 1, 8) + 0.1 * torch.randn(512, generator=generator)
        self.train_set = TensorDataset(x, y)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=32, shuffle=True)
