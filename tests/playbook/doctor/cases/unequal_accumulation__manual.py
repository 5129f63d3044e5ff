from typing import Any

import torch.nn.functional as F
from torch import Tensor

from tests.playbook.doctor.cases.no_supervised_tokens import Model as Recurrent
from tests.playbook.doctor.cases.unequal_accumulation import Data

__all__ = ["Data"]
TOGETHER = 4


class Model(Recurrent):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.manual_backward(self.loss(batch) / TOGETHER)
        if (batch_idx + 1) % TOGETHER == 0:
            optimizer: Any = self.optimizers()
            optimizer.step()
            optimizer.zero_grad()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    def loss(self, batch: Any) -> Tensor:
        tokens, labels = batch
        losses = F.cross_entropy(self(tokens).transpose(1, 2), labels, reduction="none")  # here
        return losses.sum() / self.divisor(labels)

    def divisor(self, labels: Tensor) -> Any:
        return (labels != -100).sum()


class Repaired(Model):
    def divisor(self, labels: Tensor) -> Any:
        return 40
