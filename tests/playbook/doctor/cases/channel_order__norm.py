from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.BatchNorm2d(3), nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
        )


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.permute(0, 3, 1, 2))


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 3, (300,), generator=generator)
        x = torch.randn(300, 12, 10, 3, generator=generator) + F.one_hot(y, 3)[:, None, None].float()  # here
        self.train_set: Any = TensorDataset(x[:200], y[:200])
        self.val_set: Any = TensorDataset(x[200:], y[200:])
