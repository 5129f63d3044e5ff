from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
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


class Data(Blobs):
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


class RepairedData(Data):
    def evaluated(self, readings: Jittered) -> Jittered:
        return Jittered(torch.utils.data.TensorDataset(readings.x, readings.y))
