from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import DataLoader, Dataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(1, 16)
        self.net = nn.Linear(16, 3)

    def forward(self, x: PackedSequence) -> Any:  # type: ignore[override]
        return self.net(self.rnn(x)[1][-1])


class Cut(Dataset):
    """Rows of different lengths."""

    def __init__(self, rows: Any) -> None:
        self.x, self.y = rows.tensors

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        return self.x[i, : 3 + i % 6, None], self.y[i]


def together(samples: list[Any]) -> Any:
    samples = sorted(samples, key=lambda sample: len(sample[0]), reverse=True)
    return pack_sequence([x for x, _ in samples]), torch.stack([y for _, y in samples])


def apart(samples: list[Any]) -> Any:
    x = sorted([x for x, _ in samples], key=len, reverse=True)  # here
    return pack_sequence(x), torch.stack([y for _, y in samples])


class Data(Blobs):
    collate = staticmethod(apart)

    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = Cut(self.train_set), Cut(self.val_set)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, shuffle=True, collate_fn=self.collate)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=20, collate_fn=self.collate)


class RepairedData(Data):
    collate = staticmethod(together)
