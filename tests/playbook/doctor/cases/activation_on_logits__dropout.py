from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    rate = 0.2

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(self.rate)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.net(x))  # here


class Repaired(Model):
    rate = 0.0
