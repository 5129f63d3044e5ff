import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    """The first step tells the class."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(8, 16, batch_first=True, bidirectional=True)
        self.out = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.rnn(x)
        return self.out(states[:, -1, :])  # here


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        _, (last, _) = self.rnn(x)
        return self.out(torch.cat([last[-2], last[-1]], dim=1))


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(0, 3, (500,), generator=generator)
        x = torch.randn(500, 12, 8, generator=generator)
        x[:, 0, :3] += 3 * nn.functional.one_hot(y, 3)
        self.train_set, self.val_set = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])
