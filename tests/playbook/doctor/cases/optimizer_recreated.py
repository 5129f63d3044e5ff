from typing import Any

import torch
import torch.nn.functional as F

from tests.playbook.doctor.cases.missing_zero_grad__manual import Data
from tests.playbook.doctor.cases.missing_zero_grad__manual import Model as Manual

__all__ = ["Data"]


class Model(Manual):
    """Makes an optimizer in each step."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.step(batch, torch.optim.Adam(self.parameters(), lr=1e-3))  # here

    def step(self, batch: Any, optimizer: Any) -> None:
        x, y = batch
        optimizer.zero_grad()
        self.manual_backward(F.cross_entropy(self(x), y))
        optimizer.step()


class Repaired(Model):
    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.step(batch, self.optimizers())
