from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(8, 16),
            *[nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU()] * depth,  # here
            nn.Linear(16, 3),
        )


class Repaired(Classifier):
    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        layers = [layer for _ in range(depth) for layer in (nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU())]
        self.net = nn.Sequential(nn.Linear(8, 16), *layers, nn.Linear(16, 3))
