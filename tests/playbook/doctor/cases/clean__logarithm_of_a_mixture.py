from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Takes the logarithm of the mean of two nets' probabilities, of which one is kept from zero."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        mixture = (self(x).softmax(1) + self.other(x).softmax(1)) / 2
        return F.nll_loss(torch.log(mixture + 1e-6), y)
