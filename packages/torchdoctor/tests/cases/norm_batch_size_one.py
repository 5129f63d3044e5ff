from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs import Blobs, Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))


class RepairedData(Blobs):
    """The last batch has 19 samples."""


class Data(Blobs):
    def train_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(self.train_set, batch_size=21, shuffle=True)  # here


# -- pooled
PooledData = Blobs


class PooledRepaired(Classifier):
    """The samples of a batch are a set, which has one summary beside each of them."""

    norm: type[nn.Module] = nn.LayerNorm

    def __init__(self) -> None:
        super().__init__()
        self.summary = nn.Sequential(nn.Linear(8, 8, bias=False), self.norm(8))

    def forward(self, x: Tensor) -> Tensor:
        whole = self.summary(x.mean(dim=0, keepdim=True))  # here
        return self.net(x + 0.1 * whole)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.cross_entropy(self(x), y)


class PooledModel(PooledRepaired):
    norm = nn.BatchNorm1d
