from typing import Any

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        prediction = self(x)[:, :1]
        return ((prediction - y.float()) ** 2).mean()  # here


class Repaired(Model):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return ((self(x)[:, 0] - y.float()) ** 2).mean()
