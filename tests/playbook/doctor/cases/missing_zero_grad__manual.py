from typing import Any

import torch.nn.functional as F

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer = self.optimizers()
        loss = F.cross_entropy(self(x), y)
        self.manual_backward(loss)
        optimizer.step()  # here


class Repaired(Model):
    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.optimizers().zero_grad()
        super().training_step(batch, batch_idx)
