from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.programs import Blobs, OneStep


class Repaired(OneStep):
    """A regression whose targets are the sums of the inputs."""

    outputs = 1

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.mse_loss(self(x), y)


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
