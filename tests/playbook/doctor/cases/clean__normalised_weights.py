"""Every step, also of a validation, writes prototypes of length 1: a small temperature divides cosines."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import OneStep

__all__ = ["Data"]


class Model(OneStep):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.prototypes = nn.Linear(32, 3, bias=False)

    def step(self, batch: Any) -> Tensor:
        with torch.no_grad():
            self.prototypes.weight.copy_(F.normalize(self.prototypes.weight, dim=1))
        x, y = batch
        return F.cross_entropy(self.prototypes(F.normalize(self.net(x), dim=1)) / 0.1, y)
