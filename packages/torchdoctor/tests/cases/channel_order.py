from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from programs import Blobs, Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))


def pictures(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    ramp = np.linspace(-1, 1, 16)
    x = 0.05 * rng.normal(size=(n, 16, 16, 3)) + ramp[None, :, None, None] * rng.normal(size=(n, 1, 1, 1))
    x[np.arange(n), :, :, y] += 1
    return x.astype(np.float32), y


class Data(Blobs):
    def setup(self, stage: str) -> None:
        x, y = pictures(250, 0)
        images = torch.from_numpy(x)  # here
        self.train_set = TensorDataset(images[:200], torch.from_numpy(y[:200]))
        self.val_set = TensorDataset(images[200:], torch.from_numpy(y[200:]))


class RepairedData(Blobs):
    def setup(self, stage: str) -> None:
        x, y = pictures(250, 0)
        images = torch.from_numpy(x).permute(0, 3, 1, 2)
        self.train_set = TensorDataset(images[:200], torch.from_numpy(y[:200]))
        self.val_set = TensorDataset(images[200:], torch.from_numpy(y[200:]))


# -- cube
class CubeModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(10, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3)
        )


class CubeRepairedData(Blobs):
    """Patches of 10 by 10 pixels in 10 bands, whose spectrum tells the class."""

    def spectra(self, x: Tensor) -> Tensor:
        return x

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 3, (400,), generator=generator)
        bands = torch.randn(3, 10, generator=generator)[y]
        x = bands[:, :, None, None] + torch.randn(400, 10, 10, 10, generator=generator)
        x = self.spectra(x / x.std())  # here
        self.train_set, self.val_set = TensorDataset(x[:320], y[:320]), TensorDataset(x[320:], y[320:])


class CubeData(CubeRepairedData):
    def spectra(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).contiguous()


# -- interleaved
class InterleavedModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 3)
        )


def photos(number: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noisy areas of one colour, a class each, of shape (number, 16, 16, 3)."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (number,), generator=generator)
    x = torch.randn(number, 16, 16, 3, generator=generator) + 2 * F.one_hot(y, 3)[:, None, None]
    return x / x.std(), y


class InterleavedData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = (self.made(*photos(200, seed)) for seed in (0, 1))

    def made(self, x: Tensor, y: Tensor) -> TensorDataset:
        return TensorDataset(x.reshape(-1, 3, 16, 16), y)  # here


class InterleavedRepairedData(InterleavedData):
    def made(self, x: Tensor, y: Tensor) -> TensorDataset:
        return TensorDataset(x.permute(0, 3, 1, 2).contiguous(), y)


# -- norm
class NormModel(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.BatchNorm2d(3), nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
        )


class NormRepaired(NormModel):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.permute(0, 3, 1, 2))


class NormData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 3, (300,), generator=generator)
        x = torch.randn(300, 12, 10, 3, generator=generator) + F.one_hot(y, 3)[:, None, None].float()  # here
        self.train_set: Any = TensorDataset(x[:200], y[:200])
        self.val_set: Any = TensorDataset(x[200:], y[200:])


# -- reshape
ReshapeModel = Model


class Pictures(Dataset):
    def __init__(self, n: int, seed: int) -> None:
        self.x, self.y = pictures(n, seed)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        x = torch.from_numpy(self.x[i])
        return x.reshape(3, 16, 16), int(self.y[i])  # here


class Permuted(Pictures):
    def __getitem__(self, i: int) -> Any:
        return torch.from_numpy(self.x[i]).permute(2, 0, 1), int(self.y[i])


class ReshapeData(Blobs):
    def setup(self, stage: str) -> None:
        self.train_set, self.val_set = Pictures(200, 0), Pictures(50, 1)


class ReshapeRepairedData(Blobs):
    def setup(self, stage: str) -> None:
        self.train_set, self.val_set = Permuted(200, 0), Permuted(50, 1)


# -- rows
ROWS, COLUMNS = 20, 30


class RowsModel(Classifier):
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


class RowsRepaired(RowsModel):
    channels = 3


class RowsData(pl.LightningDataModule):
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


class RowsRepairedData(RowsData):
    def ordered(self, tiles: Tensor) -> Tensor:
        return tiles.permute(0, 3, 1, 2).contiguous()
