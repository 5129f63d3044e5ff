"""Validation that keeps its best score in a buffer, and a metric that is saved."""

from typing import Any

import torch
import torch.nn.functional as F
from torchmetrics.classification import MulticlassAccuracy

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("best", torch.tensor(float("inf")))
        self.accuracy = MulticlassAccuracy(3)
        self.accuracy.persistent(True)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        scores = self(x)
        loss = F.cross_entropy(scores, y)
        self.accuracy(scores, y)
        self.best.copy_(torch.minimum(self.best, loss))
        self.log("val_loss", loss)
        self.log("val_accuracy", self.accuracy)
