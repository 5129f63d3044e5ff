from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import OneStep

__all__ = ["Data"]


class Repaired(OneStep):
    def penalty(self) -> Any:
        noise = torch.from_numpy(np.random.normal(size=(16, 8))).float().to(self.device)
        scores = self(noise)
        return 1e-3 * F.mse_loss(scores, torch.zeros_like(scores))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.step(batch) + self.penalty()


class Model(Repaired):
    """Reads a loss of what NumPy drew, which no environment waits for."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        penalty = self.penalty()
        self.last = penalty.item()  # here
        return self.step(batch) + penalty
