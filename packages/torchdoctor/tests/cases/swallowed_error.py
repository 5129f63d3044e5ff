import contextlib
from typing import Any

import torch
import torch.nn.functional as F

from programs import Blobs, Classifier

Data = Blobs


class Model(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        try:
            return super().training_step(batch, batch_idx)
        except Exception as error:  # here
            print("skipped", error)
            return None


class Repaired(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        try:
            return super().training_step(batch, batch_idx)
        except torch.cuda.OutOfMemoryError:
            return None


# -- suppress
SuppressData = Blobs


class SuppressRepaired(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        with contextlib.suppress(KeyError):
            loss = loss + 0.01 * logits.square().mean()
        return loss


class SuppressModel(SuppressRepaired):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        with contextlib.suppress(Exception):  # here
            loss = loss + 0.01 * logits.square().mean()
        return loss
