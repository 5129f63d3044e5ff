import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.reader = nn.LSTM(8, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.reader(torch.zeros(len(x), 2, 8))  # here
        return self.net(states[:, -1])


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        inputs = torch.zeros(len(x), 2, 8)
        inputs[:, 0] = x
        states, _ = self.reader(inputs)
        return self.net(states[:, -1])
