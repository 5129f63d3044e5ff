from typing import Any

import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import OneStep

__all__ = ["Data"]


class Repaired(OneStep):
    """Class 0 or another."""

    outputs = 1

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.binary_cross_entropy_with_logits(self(x).squeeze(1), (y == 0).float())


class Model(Repaired):
    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.cross_entropy(self(x), (y[:, None] == 0).float())  # here
