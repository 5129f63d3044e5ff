from torch import Tensor, nn

from tests.playbook.doctor.cases.unread_direction import Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """A weighted mean of the states of a sequence; each weight is normalised alone."""

    axis = -1

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(8, 16, batch_first=True)
        self.score, self.net = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 1)), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.rnn(x)  # (B, T, D)
        weights = self.score(states).softmax(self.axis)  # here
        return self.net((weights * states).sum(1))


class Repaired(Model):
    axis = 1
