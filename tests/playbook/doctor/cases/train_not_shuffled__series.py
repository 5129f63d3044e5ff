from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    outputs = 1

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.mse_loss(self(x), y)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.step(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch))


class Windows(Dataset):
    """Eight steps of a slow series, and the next one."""

    def __init__(self, length: int) -> None:
        times = torch.arange(length + 8) / 40
        self.series = times.sin() + 0.5 * (0.31 * times).cos() + 0.05 * torch.randn(length + 8)

    def __len__(self) -> int:
        return len(self.series) - 8

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        return self.series[number : number + 8], self.series[number + 8 :][:1]


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = Windows(800), Windows(200)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20)  # here


class RepairedData(Data):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True)
