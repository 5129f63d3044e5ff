from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs import Blobs, Classifier

Data = Blobs


class Repaired(Classifier):
    dtype_of_weights = torch.float32

    def __init__(self) -> None:
        super().__init__()
        weights = torch.from_numpy(np.array([1.0, 2.0, 1.0]))
        self.register_buffer("weights", weights.to(self.dtype_of_weights))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        losses = F.cross_entropy(self(x), y, reduction="none")
        return (losses * self.weights[y]).mean()  # here


class Model(Repaired):
    dtype_of_weights = torch.float64


# -- small
SmallData = Blobs


class SmallRepaired(Classifier):
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


class SmallModel(SmallRepaired):
    kind = torch.float64


# -- vmap
VmapData = Blobs


class VmapRepaired(Classifier):
    """One sample at a time, by torch.func."""

    gain: Tensor
    dtype_of_gain = torch.float32

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("gain", torch.ones(3, dtype=self.dtype_of_gain))

    def forward(self, x: Tensor) -> Tensor:
        return torch.vmap(self.net)(x) * self.gain  # here


class VmapModel(VmapRepaired):
    dtype_of_gain = torch.float64
