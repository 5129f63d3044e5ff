"""Learns to disturb a classifier that is given and sure of itself: its losses say nothing of an initialisation."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.given = nn.Linear(8, 3).requires_grad_(False)
        self.given.weight.copy_(20 * torch.eye(3, 8))
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self.given(x + self.net(x)), (y + 1) % 3)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.net.parameters(), lr=1e-3)
