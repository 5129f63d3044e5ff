from typing import Any

import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    factor = 1.0

    def forward(self, x: Tensor) -> Tensor:
        logits = self.net(x)
        return logits * self.factor  # here

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.nll_loss(F.log_softmax(self(x), dim=-1), y)


class Model(Repaired):
    factor = 60.0
