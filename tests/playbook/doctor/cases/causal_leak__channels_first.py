from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.cases import causal_leak
from tests.playbook.doctor.cases.causal_leak import Data

__all__ = ["Data"]


class Model(causal_leak.Model):
    """Its scores come as (B, K, T)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(16, 12, 3, padding=1)  # here

    def forward(self, tokens: Tensor) -> Tensor:
        return self.conv(self.embed(tokens).transpose(1, 2))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (tokens,) = batch
        return F.cross_entropy(self(tokens[:, :-1]), tokens[:, 1:])


class Repaired(Model):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(16, 12, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.conv(F.pad(self.embed(tokens).transpose(1, 2), (2, 0)))
