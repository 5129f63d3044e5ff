from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Two heads with an optimizer each; the trunk's follows the gradients of both losses."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
        self.second = nn.Linear(32, 3)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        of_first, of_second, of_trunk = self.optimizers()
        self.manual_backward(F.cross_entropy(self(x), y))
        of_first.step()
        of_first.zero_grad()
        self.manual_backward(F.cross_entropy(self.second(self.net[:2](x)), y))
        of_second.step()
        of_second.zero_grad()
        of_trunk.step()
        of_trunk.zero_grad()

    def configure_optimizers(self) -> Any:
        parts = self.net[2], self.second, self.net[0]
        return [torch.optim.AdamW(part.parameters(), lr=1e-2) for part in parts]
