from typing import Any

import torch
from torch import Tensor

from tests.playbook.doctor.cases.metric_misuse__means import Data, RepairedData
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data", "RepairedData"]


class Gathering:
    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, list[Tensor]] = {}

    def keep(self, name: str, value: Tensor) -> None:
        self._kept.setdefault(name, []).append(value)

    def on_validation_epoch_end(self) -> None:
        for name, values in self._kept.items():
            self.log(name, torch.stack(values).mean())  # type: ignore[attr-defined]  # here
        self._kept.clear()


class Model(Gathering, Classifier):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.keep("accuracy", (self(x).argmax(1) == y).float().mean())
