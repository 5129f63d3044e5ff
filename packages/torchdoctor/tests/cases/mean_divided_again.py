from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from programs import Blobs, Classifier

Data = Blobs


class Repaired(Classifier):
    reduction = "sum"

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        loss = F.cross_entropy(self(x), y, reduction=self.reduction)
        loss /= x.size(0)  # here
        return loss


class Model(Repaired):
    reduction = "mean"


# -- manual
ManualData = Blobs


class ManualRepaired(Classifier):
    """Goes backwards from two losses, of which one is of noise; accumulates over as many batches as one has samples."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def loss(self, scores: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(scores, y)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer: Any = self.optimizers()
        if batch_idx % 20 == 0:
            optimizer.zero_grad()
        self.manual_backward(self.loss(self(x), y) / 20)
        self.manual_backward(self.loss(self(x + torch.randn_like(x)), y) / 20)
        if batch_idx % 20 == 19:
            optimizer.step()


class ManualModel(ManualRepaired):
    def loss(self, scores: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(scores, y) / len(y)  # here
