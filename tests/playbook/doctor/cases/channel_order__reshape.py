from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from tests.playbook.doctor.programs import Blobs, Classifier


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


class Data(Blobs):
    def setup(self, stage: str) -> None:
        self.train_set, self.val_set = Pictures(200, 0), Pictures(50, 1)


class RepairedData(Blobs):
    def setup(self, stage: str) -> None:
        self.train_set, self.val_set = Permuted(200, 0), Permuted(50, 1)
