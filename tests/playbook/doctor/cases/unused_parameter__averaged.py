from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    """A network and its moving average, which every step updates."""

    def __init__(self) -> None:
        super().__init__()
        self.student = self.network()
        self.teacher = deepcopy(self.student).requires_grad_(False)
        del self.net

    def network(self) -> nn.Module:
        return nn.ModuleDict({"net": nn.Linear(8, 32), "head": nn.Linear(32, 3)})

    def update(self) -> None:
        with torch.no_grad():
            for slow, fast in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                slow.mul_(0.9).add_(fast, alpha=0.1)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.update()
        x, y = batch
        hidden = self.student["net"](x).relu()
        aim = self.teacher["net"](x).relu()
        return F.cross_entropy(self.student["head"](hidden), y) + 0.1 * F.mse_loss(hidden, aim)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", F.cross_entropy(self.student["head"](self.student["net"](x).relu()), y))


class Model(Repaired):
    def network(self) -> nn.Module:
        layers = {"net": nn.Linear(8, 32), "head": nn.Linear(32, 3), "spare": nn.Linear(32, 3)}  # here
        return nn.ModuleDict(layers)
