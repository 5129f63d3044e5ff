from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from tests.playbook.doctor.programs import OneStep
from tests.playbook.doctor.programs import Sequences as Data

__all__ = ["Data"]


class Model(OneStep):
    """Sorts its sequences by length, which every layer gets in that order, and their scores back."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRU(4, 16, batch_first=True)
        self.net = nn.Sequential(nn.Linear(16, 3))

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        lengths, order = lengths.sort(descending=True)
        _, hidden = self.encoder(pack_padded_sequence(x[order], lengths.cpu(), batch_first=True))
        return self.net(hidden[0])[order.argsort()], hidden[0]

    def step(self, batch: Any) -> Tensor:
        x, lengths, y = batch
        logits, code = self(x, lengths)
        return F.cross_entropy(logits, y) + 1e-3 * code.square().mean()
