import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    squash = staticmethod(torch.relu)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8 if i == 0 else 32, 32) for i in range(14)])
        self.net = nn.Linear(32, 3)
        for layer in self.layers:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.squash(layer(x))  # here
        return self.net(x)


class Model(Repaired):
    squash = staticmethod(torch.sigmoid)
