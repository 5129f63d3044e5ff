from typing import Any

import torch
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import OneStep

__all__ = ["Data"]


class Model(OneStep):
    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3, maximize=True)  # here


class Repaired(Model):
    """The log-likelihood, which is to be large."""

    def step(self, batch: Any) -> Tensor:
        return -super().step(batch)
