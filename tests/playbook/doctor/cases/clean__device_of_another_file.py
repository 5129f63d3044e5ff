from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Decorrelation, OneStep

__all__ = ["Data", "Model"]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Model(OneStep):
    """A loss in another file is told of the device."""

    def __init__(self) -> None:
        super().__init__()
        self.decorrelation = Decorrelation(DEVICE)

    def step(self, batch: Any) -> Tensor:
        x, y = batch
        features = self.net[1](self.net[0](x))
        return F.cross_entropy(self.net[2](features), y) + 0.1 * self.decorrelation(features)
