from typing import Any

import torch.nn.functional as F
from torch import Tensor

from programs import Blobs, Classifier

Data = Blobs


class Repaired(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return F.binary_cross_entropy_with_logits(self(x), F.one_hot(y, 3).float())


class Model(Repaired):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return F.binary_cross_entropy_with_logits(F.one_hot(y, 3).float(), self(x))  # here
