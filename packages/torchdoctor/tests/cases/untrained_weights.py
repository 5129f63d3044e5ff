from copy import deepcopy
from typing import Any

from programs import Blobs, OneStep

Data = Blobs


class Model(OneStep):
    """Loads in the end what it has kept: its first weights."""

    def keep(self) -> None:
        self.best = deepcopy(self.net.state_dict())

    def on_train_start(self) -> None:
        self.keep()
        self.losses: list[float] = []

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.losses.append(self.step(batch).item())

    def on_train_end(self) -> None:
        self.net.load_state_dict(self.best)  # here


class Repaired(Model):
    def on_validation_epoch_end(self) -> None:
        if self.losses[-1] <= min(self.losses):
            self.keep()
