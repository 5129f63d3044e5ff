from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Classifier

ROWS, COLUMNS = 20, 30


class Model(Classifier):
    """Tells the kinds of cells under a microscope, from coloured tiles."""

    channels = ROWS

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(self.channels, 16, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Repaired(Model):
    channels = 3


class Data(pl.LightningDataModule):
    """One round cell a tile, larger or smaller, on a stain that is brighter to one side."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        kind = torch.randint(3, (240,), generator=generator)
        row, column = (torch.rand(240, 1, 1, generator=generator) * 8 + 6 for _ in range(2))
        far = (torch.arange(ROWS)[:, None] - row) ** 2 + (torch.arange(COLUMNS) - column - 4) ** 2
        cell = torch.exp(-far / (2.0 * (2.0 + kind[:, None, None]) ** 2)) + 0.02 * torch.arange(COLUMNS)
        tiles = cell[..., None] * torch.tensor([0.7, 0.3, 0.9])
        tiles += 0.05 * torch.randn(tiles.shape, generator=generator)
        tiles = (tiles - tiles.mean()) / tiles.std()  # here
        self.tiles = TensorDataset(self.ordered(tiles), kind)

    def ordered(self, tiles: Tensor) -> Tensor:
        return tiles

    def train_dataloader(self) -> Any:
        return DataLoader(self.tiles, batch_size=24, shuffle=True)


class RepairedData(Data):
    def ordered(self, tiles: Tensor) -> Tensor:
        return tiles.permute(0, 3, 1, 2).contiguous()
