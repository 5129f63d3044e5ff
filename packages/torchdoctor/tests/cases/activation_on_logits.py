from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs import Blobs, Classifier, OneStep

Data = Blobs


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.Tanh()
        self.hidden, self.out = nn.Linear(8, 32), nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.hidden(x))
        return self.act(self.out(x))  # here


class Repaired(Classifier):
    """Soft capping is no activation."""

    def forward(self, x: Tensor) -> Tensor:
        return 30 * torch.tanh(self.net(x) / 30)


# -- by_hand
ByHandData = Blobs


def layers(sizes: list[int], last: type[nn.Module], act: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    hidden = [part for size, following in pairwise(sizes[:-1]) for part in (nn.Linear(size, following), act())]
    return nn.Sequential(*hidden, nn.Linear(*sizes[-2:]), last())


class ByHandModel(OneStep):
    """Cross-entropy in one's own words."""

    def __init__(self) -> None:
        super().__init__()
        self.net = layers([8, 32, 3], nn.Tanh)  # here

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        scores = self(x)
        return (scores.logsumexp(dim=1) - scores.gather(1, y[:, None])[:, 0]).mean()


class ByHandRepaired(ByHandModel):
    def __init__(self) -> None:
        super().__init__()
        self.net = layers([8, 32, 3], nn.Identity)


# -- dropout
DropoutData = Blobs


class DropoutModel(Classifier):
    rate = 0.2

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(self.rate)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.net(x))  # here


class DropoutRepaired(DropoutModel):
    rate = 0.0


# -- helper
HelperData = Blobs


def block(inputs: int, outputs: int, last: bool = False) -> nn.Sequential:
    layers = [nn.Linear(inputs, outputs)]
    return nn.Sequential(*layers) if last else nn.Sequential(*layers, nn.ReLU())


class HelperModel(Classifier):
    """Makes its last layer by the helper that makes all others, with their ReLU."""

    def __init__(self) -> None:
        super().__init__()
        first = block(8, 32)
        self.net = nn.Sequential(
            first,
            block(32, 3),  # here
        )


class HelperRepaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(block(8, 32), block(32, 3, last=True))


# -- length
LengthData = Blobs


class LengthModel(Classifier):
    scale = 1.0

    def forward(self, x: Tensor) -> Tensor:
        logits = F.normalize(self.net(x))  # here
        return logits if self.scale == 1 else self.scale * logits


class LengthRepaired(LengthModel):
    scale = 16.0
