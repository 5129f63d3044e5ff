from typing import Any

import torch
from torch.utils.data import Dataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Rows(Dataset):
    def __init__(self, rows: Any, mixed: bool) -> None:
        self.x, self.y = rows.tensors
        self.order = torch.randperm(len(self.x))
        self.mixed = mixed

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        j = self.order[i]
        return self.x[j], self.y[j if self.mixed else i]  # here


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set = Rows(self.train_set, False)


class RepairedData(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set = Rows(self.train_set, True)
