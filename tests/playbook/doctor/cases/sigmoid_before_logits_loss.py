from typing import Any

import torch
import torch.nn.functional as F

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        scores = torch.sigmoid(self(x))  # here
        return F.binary_cross_entropy_with_logits(scores, F.one_hot(y, 3).float())


class Repaired(Model):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.binary_cross_entropy_with_logits(self(x), F.one_hot(y, 3).float())
