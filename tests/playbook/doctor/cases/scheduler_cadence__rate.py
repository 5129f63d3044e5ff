import math
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR

from tests.playbook.doctor.programs import Blobs as Data
from tests.playbook.doctor.programs import Classifier

__all__ = ["Data"]
RATE, EPOCHS = 0.03, 20


def cosine(epoch: int) -> float:
    return 0.5 * RATE * (1 + math.cos(math.pi * epoch / EPOCHS))


class Model(Classifier):
    """Falls along a cosine, by a function that returns the rate itself."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=RATE, momentum=0.9)
        return [optimizer], [LambdaLR(optimizer, cosine)]  # here


class Repaired(Classifier):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=RATE, momentum=0.9)
        return [optimizer], [LambdaLR(optimizer, lambda epoch: cosine(epoch) / RATE)]
