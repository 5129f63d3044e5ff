from typing import Any

import torch
import torch.nn.functional as F

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Makes an optimizer in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

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
