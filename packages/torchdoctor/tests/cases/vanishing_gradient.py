from itertools import pairwise

import torch
from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Repaired(Classifier):
    squash = staticmethod(torch.relu)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8 if i == 0 else 32, 32) for i in range(14)])
        self.net = nn.Linear(32, 3)
        for layer in self.layers:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.squash(layer(x))  # here
        return self.net(x)


class Model(Repaired):
    squash = staticmethod(torch.sigmoid)


# -- small_weights
SmallWeightsData = Blobs


class SmallWeightsModel(Classifier):
    spread = 0.02

    def __init__(self) -> None:
        super().__init__()
        widths = [8, 32, 32, 32, 32, 32, 32]
        layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
        for layer in layers:
            nn.init.uniform_(layer.weight, -self.spread, self.spread)  # here
        self.net = nn.Sequential(*[part for layer in layers for part in (layer, nn.SiLU())], nn.Linear(32, 3))


class SmallWeightsRepaired(SmallWeightsModel):
    spread = 0.4
