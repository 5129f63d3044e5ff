from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    """Two heads with a loss each: the trunk gets the mean of their gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.net, self.other = nn.Linear(32, 3), nn.Linear(32, 3)
        self.trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(self.trunk(x))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer: Any = self.optimizers()
        features = self.trunk(x)
        self.manual_backward(F.cross_entropy(self.net(features), y) + F.cross_entropy(self.other(features), y))
        for weight in self.trunk.parameters():
            weight.grad.mul_(0.5)  # type: ignore[union-attr]  # after backward
        optimizer.step()
        optimizer.zero_grad()


Data = Blobs
