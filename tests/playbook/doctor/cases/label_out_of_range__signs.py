from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.binary_cross_entropy_with_logits(self(x)[:, 0], y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class Signs(Blobs):
    def signs(self, x: Tensor) -> Tensor:
        return torch.sign(x[:, 0] + x[:, 1])  # here

    def __init__(self) -> None:
        super().__init__()
        x = torch.randn(500, 8, generator=torch.Generator().manual_seed(1))
        y = self.signs(x)
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])


class Data(Signs):
    pass


class RepairedData(Signs):
    def signs(self, x: Tensor) -> Tensor:
        return (x[:, 0] + x[:, 1] > 0).float()
