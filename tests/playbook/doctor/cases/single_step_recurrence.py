from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """A recurrent network over features, of which each is to be a step."""

    features = 8

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(self.features, 16, batch_first=True)
        self.out = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.recurrent(x.unsqueeze(1))  # here
        return self.out(states[:, -1])


class Repaired(Model):
    features = 1

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.recurrent(x.unsqueeze(2))
        return self.out(states[:, -1])
