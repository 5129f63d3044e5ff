from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from programs import Blobs, Classifier, OneStep

Data = Blobs


class Model(OneStep):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(8))

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        self.center.mul_(0.9).add_(0.1 * x.mean(0))  # here
        return F.cross_entropy(self(x - self.center), y)


class Repaired(Model):
    def step(self, batch: Any) -> Tensor:
        x, y = batch
        if self.training:
            self.center.mul_(0.9).add_(0.1 * x.mean(0))
        return F.cross_entropy(self(x - self.center), y)


# -- average
AverageData = Blobs


class AverageModel(Classifier):
    """A moving average of the weights, which equals them as the training begins; the step of both stages moves it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 16)
        self.target = deepcopy(self.net).requires_grad_(False)

    def moves(self) -> bool:
        return True

    def step(self, x: Tensor) -> Tensor:
        if self.moves():
            for weight, average in zip(self.net.parameters(), self.target.parameters(), strict=True):
                average.data = 0.99 * average.data + 0.01 * weight.data  # here
        with torch.no_grad():
            goal = self.target(x + 0.1 * torch.randn_like(x))
        return 2 - 2 * cosine_similarity(self.head(self.net(x + 0.1 * torch.randn_like(x))), goal).mean()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.step(batch[0])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.step(batch[0]))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD([*self.net.parameters(), *self.head.parameters()], lr=0.1)


class AverageRepaired(AverageModel):
    def moves(self) -> bool:
        return self.training


# -- norm
NormData = Blobs


class NormRepaired(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))


class NormModel(NormRepaired):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.net.train()  # here
        super().validation_step(batch, batch_idx)


# -- weights
WeightsData = Blobs


class WeightsRepaired(OneStep):
    pass


class WeightsModel(OneStep):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        with torch.enable_grad():
            loss = self.step(batch)
        self.log("val_loss", loss)
        loss.backward()
        self.optimizers().step()  # here
        self.zero_grad()
