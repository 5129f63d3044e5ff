from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        x, labels, order = batch
        return F.cross_entropy(self(x), labels[order])

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val/loss", self.training_step(batch, batch_idx))


def by_length(samples: list[Any]) -> tuple[Tensor, Tensor, Tensor]:
    words, labels = zip(*samples, strict=True)
    order = torch.tensor([-len(word) for word in words]).argsort()
    padded = torch.stack([F.pad(words[i], (0, 8 - len(words[i]))) for i in order])
    return padded, torch.tensor(labels), order


class Data(Blobs):
    """Of each sample the first numbers, the longest first; the step puts the labels in the same order."""

    def _loader(self, rows: Any, shuffle: bool) -> DataLoader:
        cut = [(x[: max(4, 8 - index % 9)], int(y)) for index, (x, y) in enumerate(rows)]
        return DataLoader(cut, batch_size=20, shuffle=shuffle, collate_fn=by_length)  # type: ignore[arg-type]  # a list is a data set

    def train_dataloader(self) -> DataLoader:
        return self._loader(self.train_set, True)

    def val_dataloader(self) -> DataLoader:
        return self._loader(self.val_set, False)
