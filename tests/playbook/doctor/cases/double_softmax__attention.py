from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    """Points at one of three places, and reads there."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(3, 4))
        self.value = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        scores = self(x)
        weights = scores.softmax(dim=-1)  # here
        read = self.value(weights @ self.places)
        return F.cross_entropy(self.pointed(scores, weights), y) + (read - 1).square().mean()

    def pointed(self, scores: Tensor, weights: Tensor) -> Tensor:
        return scores


class Model(Repaired):
    def pointed(self, scores: Tensor, weights: Tensor) -> Tensor:
        return weights
