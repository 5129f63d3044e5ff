from typing import Any

from torchmetrics.classification import MulticlassAccuracy

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.accuracy = MulticlassAccuracy(3, average="micro")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.accuracy(self(x), y)

    def on_validation_epoch_end(self) -> None:
        self.log("val_accuracy", self.accuracy.compute())  # here


class Repaired(Model):
    def on_validation_epoch_end(self) -> None:
        super().on_validation_epoch_end()
        self.accuracy.reset()
