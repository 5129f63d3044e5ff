from typing import Any

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.hits = self.seen = 0

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.hits += (self(x).argmax(1) == y).sum()  # here
        self.seen += len(y)

    def on_validation_epoch_end(self) -> None:
        self.log("val_accuracy", self.hits / self.seen)


class Repaired(Model):
    def on_validation_epoch_start(self) -> None:
        self.hits = self.seen = 0
