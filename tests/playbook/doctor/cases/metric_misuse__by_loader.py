from collections import defaultdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader

from tests.playbook.doctor.programs import Blobs, Classifier


class Data(Blobs):
    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=30)


class Model(Classifier):
    """Losses are gathered for each validation loader."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: dict[int, list[Tensor]] = defaultdict(list)

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        x, y = batch
        self.losses[dataloader_idx].append(F.cross_entropy(self(x), y))

    def on_validation_epoch_end(self) -> None:
        self.log("val_loss", torch.stack([loss for losses in self.losses.values() for loss in losses]).mean())  # here
        self.losses.clear()


class Repaired(Model):
    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        x, y = batch
        self.losses[dataloader_idx] += F.cross_entropy(self(x), y, reduction="none").unbind()
