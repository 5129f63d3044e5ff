from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.norm(self.inner(x)).relu()


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.first = Block()
        self.second = Block()  # here

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.first(self.first(x)))


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.second(self.first(x)))
