from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Predicts a number of at least 0 by a last ReLU, which is 0 for all samples as the training begins."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
        nn.init.constant_(self.net[2].bias, -0.5)  # type: ignore[arg-type]  # a parameter

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.net(x).squeeze(1))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, _ = batch
        return F.mse_loss(self(x), self.size(x))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, _ = batch
        self.log("val_loss", F.mse_loss(self(x), self.size(x)))

    def size(self, x: Tensor) -> Tensor:
        return 0.3 * (x.square().sum(1).sqrt() - 2).clamp(min=0)
