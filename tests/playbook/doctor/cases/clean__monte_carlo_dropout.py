from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Averages over dropout in evaluation, to know how sure it is (Gal and Ghahramani 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 3))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        for part in self.net:
            if isinstance(part, nn.Dropout):
                part.train()
        probabilities = torch.stack([self.net(x).softmax(1) for _ in range(5)]).mean(0)
        self.log("val/loss", F.nll_loss(probabilities.log(), y))
