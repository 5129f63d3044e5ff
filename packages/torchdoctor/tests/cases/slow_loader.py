import json
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from programs import Blobs, Classifier


class Model(Classifier):
    pass


class Rows(Dataset):
    def __init__(self, rows: Any) -> None:
        self.x, self.y = rows.tensors

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        time.sleep(0.008)  # here
        return self.x[i], self.y[i]


class Data(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Rows(self.train_set), batch_size=20, shuffle=True)


class RepairedData(Blobs):
    pass


# -- collate
class CollateModel(Classifier):
    pass


def collate(rows: list[Any]) -> Any:
    x = torch.stack([row[0] for row in rows])
    for _ in range(60):
        text = json.dumps([list(map(float, row[0])) for row in rows] * 4)  # here
        assert json.loads(text)
    return x, torch.stack([row[1] for row in rows])


class CollateData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True, collate_fn=collate)


class CollateRepairedData(Blobs):
    pass


# -- seven_steps
class SevenStepsModel(Classifier):
    """A step takes a while, and each batch several times as long."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 32), Waiting(), torch.nn.Linear(32, 3))


class Waiting(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.04)
        return x.relu()


class SevenStepsRows(Rows):
    def __getitem__(self, i: int) -> Any:
        time.sleep(0.012)  # here
        return self.x[i], self.y[i]


class SevenStepsData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(SevenStepsRows(self.train_set), batch_size=20, shuffle=True)


class SevenStepsRepairedData(Blobs):
    pass
