"""A target network that gets the weights of the trained one every few steps, and gives them back once."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import OneStep

__all__ = ["Data"]


class Model(OneStep):
    def __init__(self) -> None:
        super().__init__()
        self.target = deepcopy(self.net).requires_grad_(False)
        self.kept = self.net.state_dict()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, _ = batch
        with torch.no_grad():
            wanted = self.target(x).softmax(1)
        return self.step(batch) - 0.1 * (wanted * self.net(x).log_softmax(1)).sum(1).mean()

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx % 2 == 0:
            self.kept = self.net.state_dict()
        self.target.load_state_dict(self.kept)

    def on_train_end(self) -> None:
        self.net.load_state_dict(self.target.state_dict())
