from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
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


class Repaired(Model):
    def moves(self) -> bool:
        return self.training
