import random
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


# -- beside_torch
class BesideTorchModel(Classifier):
    pass


class BesideTorchNoisy(Dataset):
    """Noise of two kinds, of which torch's own differs from worker to worker."""

    def __init__(self, rows: Any) -> None:
        self.x, self.y = rows.tensors
        self.generator = torch.Generator().manual_seed(7)  # here

    def __len__(self) -> int:
        return len(self.x)

    def noise(self) -> torch.Tensor:
        return torch.randn(8, generator=self.generator)

    def __getitem__(self, i: int) -> Any:
        return self.x[i] + 0.1 * self.noise() + 0.1 * torch.rand(8), self.y[i]


class BesideTorchData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(BesideTorchNoisy(self.train_set), batch_size=20, shuffle=True, num_workers=2)


class BesideTorchGlobal(BesideTorchNoisy):
    def noise(self) -> torch.Tensor:
        return torch.randn(8)


class BesideTorchRepairedData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(BesideTorchGlobal(self.train_set), batch_size=20, shuffle=True, num_workers=2)


# -- not_the_first
class NotTheFirstModel(Classifier):
    pass


class NotTheFirstNoisy(Dataset):
    """Every second sample is augmented."""

    def __init__(self, rows: Any) -> None:
        self.x, self.y = rows.tensors
        self.random = random.Random(7)  # here

    def __len__(self) -> int:
        return len(self.x)

    def draw(self) -> float:
        return self.random.gauss(0, 1)

    def __getitem__(self, i: int) -> Any:
        return self.x[i] + (0.1 * self.draw() if i % 2 else 0.0), self.y[i]


class NotTheFirstData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(NotTheFirstNoisy(self.train_set), batch_size=20, shuffle=True, num_workers=2)


class NotTheFirstSeeded(NotTheFirstNoisy):
    """Seeds its generator by the worker's seed at the first draw, or at each."""

    is_seeded = False

    def draw(self) -> float:
        if not self.is_seeded:
            self.random.seed(torch.initial_seed())
            self.is_seeded = True
        return self.random.gauss(0, 1) + random.Random(torch.initial_seed() + self.random.getrandbits(9)).random()


class NotTheFirstRepairedData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(NotTheFirstSeeded(self.train_set), batch_size=20, shuffle=True, num_workers=2)


# -- set_by_init_fn
class SetByInitFnModel(Classifier):
    pass


class SetByInitFnNoisy(Flipped):
    """Has noise of torch's, and of a generator that the repair's worker_init_fn makes anew."""

    def __init__(self, rows: Any) -> None:
        super().__init__(rows)
        self.generator = np.random.default_rng(7)  # here

    def __getitem__(self, i: int) -> Any:
        noise = torch.rand(8) + torch.as_tensor(self.generator.normal(size=8), dtype=torch.float32)
        return self.x[i] + 0.1 * noise, self.y[i]


class SetByInitFnData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(SetByInitFnNoisy(self.train_set), batch_size=20, shuffle=True, num_workers=2)


def make_generator(worker_id: int) -> None:
    info: Any = torch.utils.data.get_worker_info()
    info.dataset.generator = np.random.default_rng(info.seed)


class SetByInitFnRepairedData(Blobs):
    def train_dataloader(self) -> DataLoader:
        noisy = SetByInitFnNoisy(self.train_set)
        return DataLoader(noisy, batch_size=20, shuffle=True, num_workers=2, worker_init_fn=make_generator)
