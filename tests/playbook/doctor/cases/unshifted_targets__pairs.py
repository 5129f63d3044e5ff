from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from tests.playbook.doctor.cases.unshifted_targets import Data as Sentences
from tests.playbook.doctor.cases.unshifted_targets import Model as Recurrent


class Windows(Dataset):
    """A text in pieces, each with what comes next."""

    ahead = 0

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        row = self.rows[index]
        piece = row[: len(row) - 1]
        following = row[self.ahead : len(row) - 1 + self.ahead]  # here
        return piece, following


class Model(Recurrent):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    def loss(self, batch: Any) -> Tensor:
        tokens, following = batch
        logits = self(tokens)
        classes = logits.shape[-1]
        return F.cross_entropy(logits.reshape(-1, classes), following.reshape(-1))


class Data(Sentences):
    kind: type[Windows] = Windows

    def __init__(self) -> None:
        super().__init__()
        self.train_set = self.kind(torch.stack([row for (row,) in self.train_set]))
        self.val_set = self.kind(torch.stack([row for (row,) in self.val_set]))


class _Next(Windows):
    ahead = 1


class RepairedData(Data):
    kind = _Next
