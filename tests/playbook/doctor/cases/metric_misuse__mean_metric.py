from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import MeanMetric

from tests.playbook.doctor.programs import Blobs, Classifier

__all__ = ["Data"]


class Model(Classifier):
    """Shows the calibration error of a forecast beside its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.brier = MeanMetric()

    def error(self, x: Tensor, y: Tensor) -> Tensor:
        return (self(x).softmax(dim=1) - F.one_hot(y, 3)).square().sum(dim=1)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.brier(self.error(x, y).mean())  # here
        self.log("val_brier", self.brier)


class Repaired(Model):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.brier(self.error(x, y).mean(), weight=len(x))
        self.log("val_brier", self.brier)


class Data(Blobs):
    def val_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(self.val_set, batch_size=30)
