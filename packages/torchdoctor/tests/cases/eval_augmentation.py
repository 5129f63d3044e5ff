from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset

from programs import Blobs, Classifier, OneStep


class Model(Classifier):
    pass


class Noisy(Dataset):
    def __init__(self, rows: Any, augment: bool) -> None:
        self.x, self.y = rows.tensors
        self.augment = augment

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        x = self.x[i]
        if self.augment:
            x = x * np.random.uniform(0.8, 1.2)
        return x, self.y[i]


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set = Noisy(self.train_set, augment=True)
        self.val_set = Noisy(self.val_set, augment=True)  # here


class RepairedData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = Noisy(self.train_set, augment=True), Noisy(self.val_set, augment=False)


# -- flip
class FlipModel(pl.LightningModule):
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


class FlipData(pl.LightningDataModule):
    def __init__(self) -> None:
        super().__init__()
        self.train_set = Pictures(200, flips=True)
        self.val_set = Pictures(50, flips=True)  # here

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20)


class FlipRepairedData(FlipData):
    def __init__(self) -> None:
        super().__init__()
        self.val_set = Pictures(50, flips=False)


# -- hook
class HookModel(Classifier):
    pass


class HookData(Blobs):
    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        x, y = batch
        x = x + 0.1 * torch.randn_like(x)  # here
        return x, y


class HookRepairedData(Blobs):
    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        x, y = batch
        if self.trainer is not None and self.trainer.training:
            x = x + 0.1 * torch.randn_like(x)
        return x, y


# -- phase
class PhaseModel(OneStep):
    """An effect on a sound, which is learned from the sound before and after it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(1, 8, 9, padding=4), nn.Tanh(), nn.Conv1d(8, 1, 9, padding=4))

    def step(self, batch: Any) -> Tensor:
        before, after = batch
        return nn.functional.l1_loss(self.net(before), after)


class Sounds(Dataset):
    """Turns the phase of both at random."""

    def __init__(self, number: int, seed: int, augment: bool) -> None:
        self.x = torch.randn(number, 1, 64, generator=torch.Generator().manual_seed(seed))
        self.augment = augment

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        x = self.x[i]
        if self.augment and torch.rand(()) > 0.5:
            x *= -1  # in the data themselves
        return x, torch.tanh(2 * x)


class PhaseData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = Sounds(256, 0, True), Sounds(64, 1, True)  # here


class PhaseRepairedData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = Sounds(256, 0, True), Sounds(64, 1, False)


# -- shared
class SharedModel(Classifier):
    pass


class Jittered(Dataset):
    """Readings of a sensor, to which a drift may be added."""

    drift: Any = None

    def __init__(self, rows: Any) -> None:
        self.x, self.y = rows.tensors

    def __len__(self) -> int:
        return len(self.x)

    def read(self, i: int) -> Tensor:
        return self.x[i] if self.drift is None else self.drifted(self.x[i])

    def drifted(self, x: Tensor) -> Tensor:
        start = self.drift * torch.randn(1)
        return x + start

    def __getitem__(self, i: int) -> Any:
        return self.read(i), self.y[i]


class SharedData(Blobs):
    def setup(self, stage: str) -> None:
        plain = self.train_set
        order = torch.randperm(400, generator=torch.Generator().manual_seed(1)).tolist()
        readings = Jittered(plain)

        self.first, self.second = order[:320], order[320:]
        self.train_set = Subset(readings, self.first)
        self.val_set = Subset(self.evaluated(readings), self.second)

        whole: Any = self.train_set.dataset
        whole.drift = 0.2  # here

    def evaluated(self, readings: Jittered) -> Jittered:
        return readings


class SharedRepairedData(SharedData):
    def evaluated(self, readings: Jittered) -> Jittered:
        return Jittered(torch.utils.data.TensorDataset(readings.x, readings.y))
