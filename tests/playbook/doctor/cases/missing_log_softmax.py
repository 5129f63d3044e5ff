from typing import Any

import torch.nn.functional as F

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Gives probabilities to a loss that takes their logarithms."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.nll_loss(self(x).softmax(1), y)  # here


class Repaired(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.nll_loss(self(x).log_softmax(1), y)
