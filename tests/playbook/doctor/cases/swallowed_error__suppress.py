import contextlib
from typing import Any

import torch.nn.functional as F

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        with contextlib.suppress(KeyError):
            loss = loss + 0.01 * logits.square().mean()
        return loss


class Model(Repaired):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        with contextlib.suppress(Exception):  # here
            loss = loss + 0.01 * logits.square().mean()
        return loss
