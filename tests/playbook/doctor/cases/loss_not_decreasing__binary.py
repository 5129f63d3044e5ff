from typing import Any

import torch
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    outputs = 1

    def evidence(self, x: Tensor, y: Tensor) -> Tensor:
        p = torch.sigmoid(self(x)).squeeze(1).clamp(1e-6, 1 - 1e-6)
        y = (y > 0).float()
        return y * p.log() + (1 - y) * (1 - p).log()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return -self.evidence(*batch).mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", -self.evidence(*batch).mean())


class Model(Repaired):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.evidence(*batch).mean()  # here
