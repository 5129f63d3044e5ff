from typing import Any

import torch

from tests.playbook.doctor.cases import optimizer_recreated
from tests.playbook.doctor.programs import Blobs as Data

__all__ = ["Data"]


class Model(optimizer_recreated.Model):
    """Plain gradient descent remembers nothing, so that a new optimizer for each step loses nothing."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.step(batch, torch.optim.SGD(self.parameters(), lr=1e-2))
