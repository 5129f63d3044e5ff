from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, Sampler

from tests.playbook.doctor.cases.train_not_shuffled import Model, Sorted

__all__ = ["Model"]


class Round(Sampler[int]):
    """Begins anywhere, and comes once round."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        start = int(torch.randint(self.length, ()))
        return ((start + step) % self.length for step in range(self.length))

    def __len__(self) -> int:
        return self.length


class Anyhow(Round):
    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.length).tolist())


class Data(Sorted):
    kind: type[Round] = Round

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=20, sampler=self.kind(400))  # here


class RepairedData(Data):
    kind = Anyhow
