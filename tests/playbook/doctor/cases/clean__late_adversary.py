"""Adapts to another domain by an adversary that joins after ten epochs."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]  # torch declares what it does not need
        return -grad


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.domain = nn.Linear(32, 2)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        features = self.net[:2](torch.cat([x, x + 0.5]))
        domains = self.domain(Reversed.apply(features))
        loss = F.cross_entropy(self.net[2](features[: len(x)]), y)
        if self.current_epoch >= 10:
            loss = loss + 0.1 * F.cross_entropy(domains, torch.arange(2, device=x.device).repeat_interleave(len(x)))
        return loss
