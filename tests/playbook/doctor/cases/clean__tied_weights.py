from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data", "Model"]


class Model(Classifier):
    """Two layers that have one weight."""

    def __init__(self) -> None:
        super().__init__()
        first, second = nn.Linear(8, 8), nn.Linear(8, 8)
        second.weight = first.weight
        self.net = nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), nn.Linear(8, 3))
