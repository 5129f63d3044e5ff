from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Fills one tensor anew for every part of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("part", torch.zeros(5, 8), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.net[1](self.net[0](x))
        return self.net[2](self.dropped(hidden))

    def dropped(self, hidden: Tensor) -> Tensor:
        return F.dropout(hidden)  # here

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        losses = []
        for rows, labels in zip(x.split(5), y.split(5), strict=True):
            self.part.copy_(rows)
            losses.append(F.cross_entropy(self(self.part), labels))
        self.log("val_loss", torch.stack(losses).mean())


class Repaired(Model):
    def dropped(self, hidden: Tensor) -> Tensor:
        return F.dropout(hidden, training=self.training)
