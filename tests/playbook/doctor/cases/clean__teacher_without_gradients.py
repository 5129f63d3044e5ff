"""A teacher that nobody freezes: it is in evaluation mode and answers without gradients, though an optimizer has it."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
        self.teacher.eval()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        logits = self(x)
        with torch.no_grad():
            self.teacher.eval()
            goal = self.teacher(x).softmax(1)
        return cross_entropy(logits, y) + 0.1 * kl_div(logits.log_softmax(1), goal, reduction="batchmean")
