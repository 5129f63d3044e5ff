from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.cases import causal_leak
from tests.playbook.doctor.cases.causal_leak import Data, Repaired

__all__ = ["Data", "Repaired"]


class Model(causal_leak.Model):
    """Returns the scores as the loss takes them: (B · T, V)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(16, 16, 3, padding=1)  # here

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens).transpose(1, 2)
        x = self.conv(x).transpose(1, 2)
        return self.out(x).flatten(0, 1)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (tokens,) = batch
        return F.cross_entropy(self(tokens[:, :-1]), tokens[:, 1:].flatten())
