from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from tests.playbook.doctor.programs import OneStep
from tests.playbook.doctor.programs import Sequences as Data

__all__ = ["Data"]


class Repaired(OneStep):
    """Lengths that come with the batch, and go with it to an accelerator."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRU(4, 16, batch_first=True)
        self.net = nn.Sequential(nn.Linear(16, 3))

    def packed(self, x: Tensor, lengths: Tensor) -> Any:
        return pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)

    def step(self, batch: Any) -> Tensor:
        x, lengths, y = batch
        return F.cross_entropy(self.net(self.encoder(self.packed(x, lengths))[1][0]), y)


class Model(Repaired):
    def packed(self, x: Tensor, lengths: Tensor) -> Any:
        return pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)  # here
