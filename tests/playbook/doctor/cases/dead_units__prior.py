from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """The bias of rare classes is meant for the last layer."""

    prior = -4.0

    def __init__(self) -> None:
        super().__init__()
        self.apply(self.begin)
        nn.init.zeros_(self.net[2].bias)

    def begin(self, part: nn.Module) -> None:
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=0.1)
            nn.init.constant_(part.bias, self.prior)  # here


class Repaired(Model):
    prior = 0.0
