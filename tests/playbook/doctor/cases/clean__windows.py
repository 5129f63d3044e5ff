from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    """A forecast from windows in the order of time."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.mse_loss(self(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class Windows(Dataset):
    def __init__(self, series: Tensor) -> None:
        self.series = series

    def __len__(self) -> int:
        return len(self.series) - 11

    def __getitem__(self, i: int) -> Any:
        return self.series[i : i + 8], self.series[i + 8 : i + 11]


class Data(Blobs):
    def setup(self, stage: str) -> None:
        series = torch.randn(600, generator=torch.Generator().manual_seed(0)).cumsum(dim=0)
        series = (series - series[:480].mean()) / series[:480].std()
        self.train_set, self.val_set = Windows(series[:480]), Windows(series[470:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=32, shuffle=True)
