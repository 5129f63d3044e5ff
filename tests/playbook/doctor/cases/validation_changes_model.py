from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import OneStep

__all__ = ["Data"]


class Model(OneStep):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(8))

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        self.center.mul_(0.9).add_(0.1 * x.mean(0))  # here
        return F.cross_entropy(self(x - self.center), y)


class Repaired(Model):
    def step(self, batch: Any) -> Tensor:
        x, y = batch
        if self.training:
            self.center.mul_(0.9).add_(0.1 * x.mean(0))
        return F.cross_entropy(self(x - self.center), y)
