import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.cases import softmax_axis__single
from tests.playbook.doctor.cases.unread_direction import Data

__all__ = ["Data"]


class Model(softmax_axis__single.Model):
    """F.softmax without `dim` takes the first of three axes."""

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.rnn(x)  # (B, T, D)
        weights = F.softmax(self.score(states).transpose(1, 2))  # here
        return self.net(weights.bmm(states).squeeze(1))


class Repaired(softmax_axis__single.Model):
    axis = 1
