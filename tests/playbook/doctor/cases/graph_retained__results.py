from typing import Any

from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import OneStep

__all__ = ["Data"]


class Repaired(OneStep):
    """Gathers what the steps of an epoch give, and forgets it at the epoch's end."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[dict[str, Tensor]] = []

    def gather(self, loss: Tensor) -> None:
        self.results.append({"loss": loss.detach()})

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.step(batch)
        self.gather(loss)
        return loss

    def on_train_epoch_end(self) -> None:
        self.results.clear()


class Model(Repaired):
    def gather(self, loss: Tensor) -> None:
        self.results.append({"loss": loss})  # here
