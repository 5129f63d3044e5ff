from typing import Any

import torch.nn.functional as F
from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    std = 0.1

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(8, 64, batch_first=True)
        self.net = nn.Linear(64, 3)
        nn.init.normal_(self.rnn.weight_hh_l0, std=self.std)  # here

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        out, _ = self.rnn(x[:, None].expand(-1, 30, -1))
        return F.cross_entropy(self(out[:, -1]), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        out, _ = self.rnn(x[:, None].expand(-1, 30, -1))
        self.log("val_loss", F.cross_entropy(self(out[:, -1]), y))


class Model(Repaired):
    std = 1.0
