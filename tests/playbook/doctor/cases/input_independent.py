import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.state = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        x = self.state.expand_as(x)  # here
        return self.net(x)


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x + self.state)
