from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    """A step that takes the labels out of its batch, and scales the inputs in place."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        y = batch.pop("y")
        return F.cross_entropy(self(batch["x"].mul_(0.5)), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", F.cross_entropy(self(batch["x"].mul_(0.5)), batch.pop("y")))


def named(samples: Any) -> dict[str, Tensor]:
    x, y = zip(*samples, strict=True)
    return {"x": torch.stack(x), "y": torch.stack(y)}


class Data(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=32, shuffle=True, collate_fn=named)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=32, collate_fn=named)
