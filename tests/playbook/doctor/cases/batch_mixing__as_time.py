from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Reads the samples of a batch, which come in random order, as one sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(8, 32, batch_first=True)
        self.net = nn.Sequential(nn.Linear(32, 3))

    def scores(self, x: Tensor) -> Tensor:
        return self.net(self.rnn(x.unsqueeze(0))[0])  # here

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(x).squeeze()


class Repaired(Model):
    def scores(self, x: Tensor) -> Tensor:
        return self.net(self.rnn(x.unsqueeze(1))[0])
