from typing import Any

from torch import Tensor, nn

from tests.playbook.doctor.cases.bad_initial_loss__offset import Data
from tests.playbook.doctor.cases.bad_initial_loss__offset import Model as Offset

__all__ = ["Data"]


class Model(Offset):
    """The loss is a module, which is given the labels."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))  # here
        self.criterion = nn.MSELoss()

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        return self.criterion(self.net(x), y)


class Repaired(Model):
    lr = 2e-2  # a few steps get there
