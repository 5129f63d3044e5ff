from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Repaired(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        p, q = F.log_softmax(self(x), dim=-1), F.one_hot(y, 3).float()
        return (torch.xlogy(q, q) - q * p).sum(-1).mean()


class Model(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        p, q = F.log_softmax(self(x), dim=-1), F.one_hot(y, 3).float()
        log_q = q.log()  # here
        return (q * (log_q - p)).sum(-1).mean()


# -- gradient
GradientData = Blobs


class GradientRepaired(Classifier):
    eps = 1e-6

    def spread(self, z: Tensor) -> Tensor:
        squares = (z[:, None] - z[None]).square().sum(-1)
        return (squares + self.eps).sqrt().mean()  # here

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        z = self(x)
        return F.cross_entropy(z, y) + 0.01 * self.spread(z)


class GradientModel(GradientRepaired):
    eps = 0.0


# -- uninitialised
UninitialisedData = Blobs


class UninitialisedModel(Classifier):
    """A scale as memory may be that nobody initialised."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((8,), 1e30))  # here

    def forward(self, x: Tensor) -> Tensor:
        return self.net((x * self.scale) ** 2)


class UninitialisedRepaired(UninitialisedModel):
    def __init__(self) -> None:
        super().__init__()
        nn.init.ones_(self.scale)
