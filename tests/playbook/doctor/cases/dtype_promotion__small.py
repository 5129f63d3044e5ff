from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    """One number for each sample is double, beside a network of some size."""

    kind = torch.float32

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 3))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        losses = nn.functional.cross_entropy(self(x), y, reduction="none")
        weights = torch.from_numpy(np.linspace(0.9, 1.1, len(y))).to(self.kind)
        return (losses * weights).mean()  # here


class Model(Repaired):
    kind = torch.float64
