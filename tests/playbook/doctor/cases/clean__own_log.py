from typing import Any

from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import OneStep

__all__ = ["Data"]


class Model(OneStep):
    """Keeps results under a name that Lightning has for a method, and more under those of a replayed script."""

    def __init__(self) -> None:
        super().__init__()
        self.log_dict: Any = {"train": [], "val": []}
        self.sources, self.replay = 2, ["a", "b"]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = self.step(batch)
        self.log_dict["train"].append(loss.detach())
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log_dict["val"].append(self.step(batch))

    def on_train_epoch_end(self) -> None:
        self.log("train_loss", sum(self.log_dict["train"]))
        self.log_dict["train"].clear()

    def on_validation_epoch_end(self) -> None:
        self.log("val_loss", sum(self.log_dict["val"]))
        self.log_dict["val"].clear()
