from copy import deepcopy
from typing import Any

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import OneStep

__all__ = ["Data"]


class Model(OneStep):
    """Keeps its best weights in validation and loads them in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []
        self.best: dict[str, Any] = {}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.losses.append(self.step(batch).item())

    def on_validation_epoch_end(self) -> None:
        if self.losses[-1] <= min(self.losses) or not self.best:
            self.best = self.net.state_dict()  # here

    def on_train_end(self) -> None:
        self.net.load_state_dict(self.best)


class Repaired(Model):
    def on_validation_epoch_end(self) -> None:
        if self.losses[-1] <= min(self.losses) or not self.best:
            self.best = deepcopy(self.net.state_dict())
