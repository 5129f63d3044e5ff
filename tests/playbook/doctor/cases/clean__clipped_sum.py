from typing import Any

import torch
from torch import nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    """A loss that is a large sum, recurrent weights above 1, clipped in a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(8, 64, batch_first=True)
        self.net = nn.Linear(64, 8)
        nn.init.normal_(self.rnn.weight_hh_l0, std=0.5)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, _ = batch
        out, _ = self.rnn(x[:, None].expand(-1, 20, -1))
        return (self.net(out[:, -1]) - 6 * x).square().sum()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)
