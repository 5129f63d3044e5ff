from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Makes dropout that its forward leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.3)  # here


class Repaired(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.dropout(x))
