from typing import Any

import torch.nn.functional as F
from torch.nn.utils import clip_grad_value_

from tests.playbook.doctor.cases.missing_zero_grad__manual import Data
from tests.playbook.doctor.cases.missing_zero_grad__manual import Model as Manual

__all__ = ["Data"]


class Model(Manual):
    """Clips what the step has used already, before it is zeroed."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer: Any = self.optimizers()
        self.manual_backward(F.cross_entropy(self(x), y))
        optimizer.step()
        clip_grad_value_(self.parameters(), 0.5)  # here
        optimizer.zero_grad()


class Repaired(Model):
    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(F.cross_entropy(self(x), y))
        clip_grad_value_(self.parameters(), 0.5)
        optimizer.step()
