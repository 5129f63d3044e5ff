from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    """Predicts the noise that was added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))

    def step(self, x: Tensor) -> Tensor:
        noise = torch.randn_like(x)
        return F.mse_loss(self(0.5 * x + noise), noise)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.step(batch[0])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch[0]))


class Model(Repaired):
    def step(self, x: Tensor) -> Tensor:
        noise = torch.randn_like(x)
        return F.mse_loss(self(0.5 * x + torch.randn_like(x)), noise)  # here
