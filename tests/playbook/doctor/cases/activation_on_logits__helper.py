from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


def block(inputs: int, outputs: int, last: bool = False) -> nn.Sequential:
    layers = [nn.Linear(inputs, outputs)]
    return nn.Sequential(*layers) if last else nn.Sequential(*layers, nn.ReLU())


class Model(Classifier):
    """Makes its last layer by the helper that makes all others, with their ReLU."""

    def __init__(self) -> None:
        super().__init__()
        first = block(8, 32)
        self.net = nn.Sequential(
            first,
            block(32, 3),  # here
        )


class Repaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(block(8, 32), block(32, 3, last=True))
