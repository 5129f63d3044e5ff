"""Clips after each of two backward passes that one step takes, reads the norm after it, and has a frozen layer."""

from typing import Any

import torch.nn.functional as F
from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data", "Model"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.net[0].requires_grad_(False)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        for inputs, target in zip(x.chunk(2), y.chunk(2), strict=True):
            self.manual_backward(F.cross_entropy(self(inputs), target) / 2)
            nn.utils.clip_grad_value_(self.parameters(), 1.0)
            nn.utils.clip_grad_norm_(self.net[0].parameters(), 1.0)
        optimizer.step()
        self.log("norm", nn.utils.clip_grad_norm_(self.parameters(), float("inf")))
