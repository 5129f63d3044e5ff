from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from tests.playbook.doctor.cases.causal_leak import Data
from tests.playbook.doctor.cases.causal_leak import Model as Leaky

__all__ = ["Data"]


class Model(Leaky):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.LSTM(16, 16, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.conv(self.embed(tokens))[0])

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (tokens,) = batch
        return F.cross_entropy(self(tokens).flatten(0, 1), tokens.flatten())  # here


class Repaired(Model):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (tokens,) = batch
        return F.cross_entropy(self(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
