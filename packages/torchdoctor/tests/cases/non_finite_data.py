from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate, random_split

from programs import Blobs, Classifier


class Model(Classifier):
    pass


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        y = rng.integers(0, 3, 400)
        x = rng.normal(0, 1, (400, 8)).astype(np.float32) + y[:, None]
        x[:, 3] = np.log(np.maximum(x[:, 3], 0))  # here
        x = np.clip(x, -1e30, None) if self.clipped else x
        self.train_set = TensorDataset(torch.from_numpy(x).float(), torch.from_numpy(y))

    clipped = False


class RepairedData(Blobs):
    pass


# -- collate
class CollateModel(Classifier):
    pass


def scaled(x: Tensor, least: float) -> Tensor:
    mean, std = x.mean(dim=1, keepdim=True), x.std(dim=1, keepdim=True)
    return (x - mean) / std.clamp(min=least)  # here


class CollateData(Blobs):
    least = 0.0

    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        x[123] = 1.0
        self.train_set = TensorDataset(x, y)

    def collate(self, samples: list[Any]) -> Any:
        x, y = default_collate(samples)
        return scaled(x, self.least), y

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True, collate_fn=self.collate)


class CollateRepairedData(CollateData):
    least = 1e-6


# -- one_sample
class OneSampleModel(Classifier):
    pass


class Ratios(Dataset):
    def __init__(self, guard: float) -> None:
        generator = torch.Generator().manual_seed(0)
        self.y = torch.randint(0, 3, (400,), generator=generator)
        self.x = torch.randn(400, 8, generator=generator) + self.y[:, None]
        self.x[333] = 0
        self.guard = guard

    def __len__(self) -> int:
        return 400

    def __getitem__(self, i: int) -> Any:
        x = self.x[i]
        x = x / (x.norm() + self.guard)  # here
        return x, self.y[i]


class OneSampleData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set = Ratios(0.0)


class OneSampleRepairedData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set = Ratios(1e-6)


# -- split
class SplitModel(Classifier):
    pass


class SplitData(Blobs):
    """Some samples were never measured."""

    def setup(self, stage: str) -> None:
        x, y = (torch.cat(parts) for parts in zip(self.train_set[:], self.val_set[:], strict=True))
        seen = torch.arange(len(x)) % 41 > 0
        self.train_set, self.val_set = random_split(TensorDataset(x / seen[:, None], y), [0.8, 0.2])  # here


class SplitRepairedData(Blobs):
    pass
