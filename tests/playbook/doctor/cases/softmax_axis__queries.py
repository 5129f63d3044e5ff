import torch
from torch import Tensor, nn

from tests.playbook.doctor.cases.unread_direction import Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """The first half of a sequence attends to the second."""

    axis = 1

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.net = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(8, 3)
        self.normalise = nn.Softmax(dim=self.axis)  # here

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=1)
        scores = torch.einsum("bqd,bkd->bqk", self.query(first), self.key(second))
        weights = self.normalise(scores.masked_fill(scores < -20, -torch.inf)).contiguous()
        return self.net(torch.einsum("bqk,bkd->bqd", weights, second).mean(1) + first.mean(1))


class Repaired(Model):
    axis = 2
