from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Rows(Dataset):
    def __init__(self, x: Tensor, y: Tensor, noise: float) -> None:
        self.x, self.y, self.noise = x, y, noise

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        return self.x[i] + self.noise * torch.randn(8), self.y[i]


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        self.train_set = Rows(x, y, noise=0.1)
        self.val_set = Rows(x[300:], y[300:], noise=0.0)  # here


class RepairedData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        self.train_set, self.val_set = Rows(x[:300], y[:300], noise=0.1), Rows(x[300:], y[300:], noise=0.0)
