from torch import Tensor

from tests.playbook.doctor.cases.unread_direction import Data
from tests.playbook.doctor.cases.unread_direction import Repaired as Both

__all__ = ["Data"]


class Model(Both):
    def forward(self, x: Tensor) -> Tensor:
        _, (last, _) = self.rnn(x)
        return self.out(last[-1].repeat(1, 2))  # here


class Repaired(Both):
    pass
