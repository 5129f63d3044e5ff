from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    dtype_of_weights = torch.float32

    def __init__(self) -> None:
        super().__init__()
        weights = torch.from_numpy(np.array([1.0, 2.0, 1.0]))
        self.register_buffer("weights", weights.to(self.dtype_of_weights))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        losses = F.cross_entropy(self(x), y, reduction="none")
        return (losses * self.weights[y]).mean()  # here


class Model(Repaired):
    dtype_of_weights = torch.float64
