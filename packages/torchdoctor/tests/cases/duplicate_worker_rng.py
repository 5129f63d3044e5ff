from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from programs import Blobs, Classifier


class Model(Classifier):
    pass


class Noisy(Dataset):
    def __init__(self, rows: Any) -> None:
        self.x, self.y = rows.tensors
        self.generator = np.random.default_rng(7)  # here

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        noise = self.generator.normal(size=8)
        return self.x[i] + 0.1 * torch.as_tensor(noise, dtype=torch.float32), self.y[i]


class Data(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Noisy(self.train_set), batch_size=20, shuffle=True, num_workers=2)


class RepairedData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Noisy(self.train_set), batch_size=20, shuffle=True)


# -- init_fn
class InitFnModel(Classifier):
    pass


class InitFnNoisy(Dataset):
    def __init__(self, rows: Any) -> None:
        self.x, self.y = rows.tensors

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        noise = np.random.normal(size=8)
        return self.x[i] + 0.1 * torch.as_tensor(noise, dtype=torch.float32), self.y[i]


def seed_worker(worker_id: int) -> None:
    np.random.seed(123)  # here


class InitFnData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(
            InitFnNoisy(self.train_set), batch_size=20, shuffle=True, num_workers=2, worker_init_fn=seed_worker
        )


class InitFnRepairedData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(InitFnNoisy(self.train_set), batch_size=20, shuffle=True, num_workers=2)


# -- coin
class CoinModel(Classifier):
    pass


class CoinData(Blobs):
    """A flip by a generator that both workers copy; by chance, 4 of 4 are alike in 1 of 16 pairs of workers."""

    def train_dataloader(self) -> DataLoader:
        return DataLoader(Flipped(self.train_set), batch_size=20, shuffle=True, num_workers=2)


class Flipped(Dataset):
    def __init__(self, rows: Any) -> None:
        self.x, self.y = rows.tensors
        self.generator = np.random.default_rng(7)  # here

    def __len__(self) -> int:
        return len(self.x)

    def flips(self) -> bool:
        return bool(self.generator.integers(2))

    def __getitem__(self, i: int) -> Any:
        return self.x[i].flip(0) if self.flips() else self.x[i], self.y[i]


class CoinRepairedData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Coins(self.train_set), batch_size=20, shuffle=True, num_workers=2)


class Coins(Flipped):
    def flips(self) -> bool:
        return bool(torch.rand(()) < 0.5)
