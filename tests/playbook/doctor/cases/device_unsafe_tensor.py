from typing import Any

import torch
import torch.nn.functional as F

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weights", torch.tensor([1.0, 2.0, 1.0]))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.cross_entropy(self(x), y, weight=self.weights)


class Model(Repaired):
    def __init__(self) -> None:
        super().__init__()
        del self.weights
        self.weights = torch.tensor([1.0, 2.0, 1.0])  # here
