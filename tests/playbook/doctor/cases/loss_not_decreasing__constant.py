from typing import Any

import torch.nn.functional as F

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]


class Repaired(Classifier):
    outputs = 1

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.mse_loss(self(x).sigmoid().squeeze(1), (y > 0).float())

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", F.mse_loss(self(x).sigmoid().squeeze(1), (y > 0).float()))


class Model(Repaired):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        probability = F.softmax(self(x), dim=1).squeeze(1)  # here
        return F.mse_loss(probability, (y > 0).float())
