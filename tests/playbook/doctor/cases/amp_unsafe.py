from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy(logits.sigmoid(), F.one_hot(y, 3).float())  # here

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return self.loss(self(x), y)


class Repaired(Model):
    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(logits.device.type, enabled=False):
            return F.binary_cross_entropy(logits.float().sigmoid(), F.one_hot(y, 3).float())
