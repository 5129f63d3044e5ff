from typing import Any

import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Predicts how far a sample is from the origin, as a frozen function of it says."""

    outputs = 1

    @torch.no_grad()
    def wanted(self, x: Tensor) -> Tensor:
        return x.square().sum(dim=1).sqrt() - 2.5

    def predicted(self, x: Tensor) -> Tensor:
        return nn.functional.softplus(self(x)) - 1

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        error = self.wanted(batch[0]) - self.predicted(batch[0])  # here
        return torch.where(error.abs() < 1, 0.5 * error**2, error.abs() - 0.5).mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))


class Repaired(Model):
    def predicted(self, x: Tensor) -> Tensor:
        return super().predicted(x).squeeze(1)
