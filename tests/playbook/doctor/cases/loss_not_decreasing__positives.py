from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import OneStep

__all__ = ["Data"]


class Repaired(OneStep):
    """A sample is to be told from the others by a noisy look at it."""

    outputs = 8

    def keys(self, x: Tensor, order: Tensor) -> Tensor:
        with torch.no_grad():
            return self(x[order])[order.argsort()]

    def step(self, batch: Any) -> Tensor:
        x = batch[0]
        order = torch.randperm(len(x), device=x.device)
        keys = self.keys(x + 0.1 * torch.randn_like(x), order)
        similar = F.normalize(self(x), dim=1) @ F.normalize(keys, dim=1).T
        return F.cross_entropy(similar / 0.2, torch.arange(len(x), device=x.device))


class Model(Repaired):
    def keys(self, x: Tensor, order: Tensor) -> Tensor:
        with torch.no_grad():
            return self(x[order])

    def step(self, batch: Any) -> Tensor:
        x = batch[0]
        order = torch.randperm(len(x), device=x.device)  # here
        keys = self.keys(x + 0.1 * torch.randn_like(x), order)
        similar = F.normalize(self(x), dim=1) @ F.normalize(keys, dim=1).T
        return F.cross_entropy(similar / 0.2, torch.arange(len(x), device=x.device))
