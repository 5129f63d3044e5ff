from typing import Any

from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))


class Model(Repaired):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.net.train()  # here
        super().validation_step(batch, batch_idx)
