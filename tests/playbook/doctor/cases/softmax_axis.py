import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.cases.unread_direction import Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Two heads attend to the steps of a sequence."""

    axis = 1

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.net = nn.Linear(8, 48), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(x).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)  # (3, B, H, T, D)
        query, key, value = heads.unbind(0)
        scores = query @ key.transpose(2, 3) / 8**0.5  # (B, H, T, T)
        weights = F.dropout(F.softmax(scores, dim=self.axis), 0.1, self.training)  # here
        mixed = (weights @ value).transpose(1, 2).flatten(2)  # (B, T, H * D)
        return self.net(mixed.mean(1))


class Repaired(Model):
    axis = -1
