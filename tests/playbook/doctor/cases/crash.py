from typing import Any

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, _ = batch
        self.net(x[:, :5])  # here


class Repaired(Classifier):
    pass
