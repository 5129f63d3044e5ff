from typing import Any

import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    """Restores its inputs."""

    outputs = 8

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, _ = batch
        return F.mse_loss(self(x), x, reduction="none").sum(1).mean()


class Model(Repaired):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, _ = batch
        return -F.mse_loss(self(x), x, reduction="none").sum(1).mean()  # here
