from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import TensorDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    """Two classes from one logit, and labels (B, 1)."""

    outputs = 1

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return F.binary_cross_entropy_with_logits(self(x), y)

    def hits(self, x: Tensor, y: Tensor) -> Tensor:
        return (self(x).squeeze() > 0) == y  # here

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        hits = self.hits(*batch)
        self.log("val_accuracy", hits.float().mean())


class Repaired(Model):
    def hits(self, x: Tensor, y: Tensor) -> Tensor:
        return (self(x) > 0) == y


class Data(Blobs):
    def __init__(self) -> None:
        super().__init__()
        for name in ("train_set", "val_set"):
            x, y = getattr(self, name).tensors
            setattr(self, name, TensorDataset(x, (y > 0).float().unsqueeze(1)))
