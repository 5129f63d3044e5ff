from itertools import pairwise

from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    spread = 0.02

    def __init__(self) -> None:
        super().__init__()
        widths = [8, 32, 32, 32, 32, 32, 32]
        layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
        for layer in layers:
            nn.init.uniform_(layer.weight, -self.spread, self.spread)  # here
        self.net = nn.Sequential(*[part for layer in layers for part in (layer, nn.SiLU())], nn.Linear(32, 3))


class Repaired(Model):
    spread = 0.4
