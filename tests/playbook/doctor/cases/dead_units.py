import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    start = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(8, 64)
        self.net = nn.Linear(64, 3)
        nn.init.constant_(self.hidden.bias, self.start)  # here

    def forward(self, x: Tensor) -> Tensor:
        return self.net(F.relu(self.hidden(x)))


class Model(Repaired):
    start = -4.0
