"""Test data with training samples, which training changes at random before they are seen."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from programs import Blobs, Classifier

Model = Classifier


class Rows(Dataset):
    def __init__(self, x: Tensor, y: Tensor, change: Any = None) -> None:
        self.rows, self.change = [*zip(x, y, strict=True)], change

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        x, y = self.rows[index]
        return {"x": x if self.change is None else self.change(x), "y": y}


class Data(Blobs):
    first = 250

    def __init__(self) -> None:
        super().__init__()
        x, y = self.train_set.tensors  # type: ignore[attr-defined]
        self.train_set = Rows(x[:300], y[:300], change=lambda row: row + 0.1 * torch.randn(8))
        self.val_set = Rows(x[300:350], y[300:350])
        self.test_set = Rows(x[self.first : self.first + 50], y[self.first : self.first + 50])  # here

    def test_dataloader(self) -> DataLoader:
        return DataLoader(self.test_set, batch_size=20)


class RepairedData(Data):
    first = 350
