from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.doctor.programs import Blobs, Classifier


class Repaired(Classifier):
    """A regression whose targets are the sums of the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.mse_loss(self(x), y)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.step(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch))


class Model(Repaired):
    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return 1.0 / (1e-3 + F.mse_loss(self(x), y))  # here


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(500, 8, generator=generator)
        y = x.sum(1, keepdim=True) / 8**0.5
        self.train_set = torch.utils.data.TensorDataset(x[:400], y[:400])
        self.val_set = torch.utils.data.TensorDataset(x[400:], y[400:])
