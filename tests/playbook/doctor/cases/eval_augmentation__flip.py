from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


class Model(pl.LightningModule):
    """An autoencoder, whose step uses no label."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return F.mse_loss(self.net(batch[0]), batch[0])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", F.mse_loss(self.net(batch[0]), batch[0]))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Pictures(Dataset):
    def __init__(self, number: int, flips: bool) -> None:
        self.x = torch.rand(number, 1, 8, 8, generator=torch.Generator().manual_seed(number))
        self.flips = flips

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        x = self.x[index]
        return (x.flip(-1) if self.flips and torch.rand(()) < 0.5 else x), 0


class Data(pl.LightningDataModule):
    def __init__(self) -> None:
        super().__init__()
        self.train_set = Pictures(200, flips=True)
        self.val_set = Pictures(50, flips=True)  # here

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20)


class RepairedData(Data):
    def __init__(self) -> None:
        super().__init__()
        self.val_set = Pictures(50, flips=False)
