import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.cases import clean__two_players
from tests.playbook.doctor.cases.clean__two_players import Data

__all__ = ["Data"]


class Model(clean__two_players.Model):
    """The critic drops values, and there is no validation step to see it in."""

    def judged(self, x: Tensor, real: float) -> Tensor:
        return super().judged(self.dropped(x), real)

    def dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.3)  # here


class Repaired(Model):
    def dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.3, training=self.training)
