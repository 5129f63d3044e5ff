from typing import Any

import numpy as np
from torch.utils.data import Dataset

from tests.playbook.doctor.programs import Blobs, Classifier


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
