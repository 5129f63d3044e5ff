from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.binary_cross_entropy_with_logits(self(x)[:, 0], y, pos_weight=torch.tensor(50.0))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class Data(Blobs):
    def setup(self, stage: str) -> None:
        x = torch.randn(1000, 8, generator=torch.Generator().manual_seed(1))
        y = (x[:, 0] > x[:, 0].quantile(0.99)).float()
        self.train_set, self.val_set = TensorDataset(x[:800], y[:800]), TensorDataset(x[800:], y[800:])

    def train_dataloader(self) -> DataLoader:
        y = self.train_set.tensors[1]  # type: ignore[attr-defined]
        sampler = torch.utils.data.WeightedRandomSampler((1 + 20 * y).tolist(), len(y))
        return DataLoader(self.train_set, batch_size=20, sampler=sampler)
