from typing import Any

import torch
import torch.nn.functional as F

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data", "Repaired"]

Repaired = Classifier


class Model(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        logits, losses = self(x), []
        for i in range(len(y)):  # here
            for _ in range(2):
                losses.append(F.cross_entropy(logits[i], y[i]))
        return torch.stack(losses).mean()
