from typing import Any

import torch.nn.functional as F
from torch import nn
from torchmetrics.classification import MulticlassAccuracy

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Logs an accuracy for each class under one name, which Lightning refuses as the epoch ends."""

    def __init__(self, average: str | None = "none") -> None:
        super().__init__()
        self.accuracy: nn.Module = MulticlassAccuracy(3, average=average)  # type: ignore[arg-type]  # one of its words

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        logits = self(x)
        self.accuracy(logits, y)
        self.log("val_loss", F.cross_entropy(logits, y))
        self.log("val_accuracy", self.accuracy)  # here


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__(average="macro")
