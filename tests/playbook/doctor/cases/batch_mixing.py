from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        attention = self.gate(x).softmax(dim=0)  # here
        return self.net(x * attention)


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x * self.gate(x).softmax(dim=1))
