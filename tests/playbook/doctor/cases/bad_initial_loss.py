from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data", "Repaired"]

Repaired = Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 3))

        nn.init.zeros_(self.net[0].bias)
        nn.init.zeros_(self.net[2].bias)

        nn.init.normal_(self.net[2].weight, std=2.0)  # here
