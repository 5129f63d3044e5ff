from typing import Any

import torch
import torch.nn.functional as F

from tests.playbook.doctor.cases.missing_zero_grad__manual import Data
from tests.playbook.doctor.cases.missing_zero_grad__manual import Model as Manual

__all__ = ["Data"]


class Model(Manual):
    """Clips before the backward pass has given any gradient."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        loss = F.cross_entropy(self(x), y)
        torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)  # here
        self.manual_backward(loss)
        optimizer.step()


class Repaired(Model):
    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(F.cross_entropy(self(x), y))
        torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)
        optimizer.step()
