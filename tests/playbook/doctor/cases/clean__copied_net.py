"""Value learning whose step copies its net into another one, from time to time."""

from copy import deepcopy
from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.slow = deepcopy(self.net).requires_grad_(False)
        self.num_seen = 0

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        if self.num_seen % 3 == 0:
            self.slow.load_state_dict(self.net.state_dict())
        self.num_seen += 1
        with torch.no_grad():
            best = 0.9 * self.slow(-x).amax(1) + (y == 0).float()
        return F.mse_loss(self(x).gather(1, y[:, None])[:, 0], best)

    validation_step = pl.LightningModule.validation_step
