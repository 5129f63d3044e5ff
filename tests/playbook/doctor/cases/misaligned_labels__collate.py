from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


def by_length(samples: list[Any]) -> tuple[Tensor, Tensor]:
    words, labels = zip(*samples, strict=True)
    order = torch.tensor([-len(word) for word in words]).argsort()  # here
    return pad_sequence([words[i] for i in order], batch_first=True), torch.tensor(labels)


def both_by_length(samples: list[Any]) -> tuple[Tensor, Tensor]:
    return by_length(sorted(samples, key=lambda sample: -len(sample[0])))


class Data(Blobs):
    """Of each sample the first numbers, from 4 of them to all 8."""

    collate = staticmethod(by_length)

    def _loader(self, rows: Any, shuffle: bool) -> DataLoader:
        cut = [(x[: max(4, 8 - index % 9)], int(y)) for index, (x, y) in enumerate(rows)]
        return DataLoader(cut, batch_size=20, shuffle=shuffle, collate_fn=self.collate)  # type: ignore[arg-type]  # a list is a data set

    def train_dataloader(self) -> DataLoader:
        return self._loader(self.train_set, True)

    def val_dataloader(self) -> DataLoader:
        return self._loader(self.val_set, False)


class RepairedData(Data):
    collate = staticmethod(both_by_length)
