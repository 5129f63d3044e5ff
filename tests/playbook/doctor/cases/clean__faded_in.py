"""A layer that fades in (Karras et al. 2018): in the first epoch it multiplies what comes by zero."""

from typing import Any

import torch
from torch import Tensor, nn

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    share: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
        self.register_buffer("share", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.share * x)

    def on_train_epoch_end(self) -> Any:
        self.share.fill_(1.0)
