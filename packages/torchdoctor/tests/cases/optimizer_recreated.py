from typing import Any

import torch
import torch.nn.functional as F

from cases import missing_zero_grad

Data = missing_zero_grad.ManualData


class Model(missing_zero_grad.ManualModel):
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
