from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.cases.clean__late_adversary import Reversed


class Model(pl.LightningModule):
    """Adapts to another domain: samples of either come with their domain, and one layer is asked about both."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.classes, self.domains = nn.Linear(32, 3), nn.Linear(32, 2)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y, domain, other_x, other_domain = batch
        features = self.features(x)
        loss = F.cross_entropy(self.classes(features), y)
        here = F.cross_entropy(self.domains(Reversed.apply(features)), domain)
        there = F.cross_entropy(self.domains(Reversed.apply(self.features(other_x))), other_domain)
        return loss + 0.1 * (here + there)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y, *_ = batch
        self.log("val_loss", F.cross_entropy(self.classes(self.features(x)), y))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Data(pl.LightningDataModule):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 3, (500,), generator=generator)
        x = torch.randn(500, 8, generator=generator)
        x[:, :3] += 2.0 * F.one_hot(y, 3)
        other = torch.randn(500, 8, generator=generator) + 0.5
        parts = (x, y, torch.zeros_like(y), other, torch.ones_like(y))
        self.train_set = TensorDataset(*(part[:400] for part in parts))
        self.val_set = TensorDataset(*(part[400:] for part in parts))

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20)
