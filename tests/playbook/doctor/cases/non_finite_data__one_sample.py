from typing import Any

import torch
from torch.utils.data import Dataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
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


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set = Ratios(0.0)


class RepairedData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set = Ratios(1e-6)
