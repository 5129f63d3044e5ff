from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.heads = {"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)}  # here

    def forward(self, x: Tensor) -> Tensor:
        x = self.net(x)
        return self.heads["a"](x) + self.heads["b"](x)


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleDict(self.heads)
