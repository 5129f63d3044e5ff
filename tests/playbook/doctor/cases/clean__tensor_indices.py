"""A batch sampler that yields lists of tensors, for worker processes."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Blobs
from tests.playbook.doctor.programs import Classifier as Model

__all__ = ["Model"]


class Batches:
    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return self.number // 20

    def __iter__(self) -> Iterator[list[Tensor]]:
        for part in torch.randperm(self.number).split(20):
            yield list(part)


class Data(Blobs):
    def train_dataloader(self) -> DataLoader:
        assert isinstance(self.train_set, TensorDataset)
        return DataLoader(self.train_set, batch_sampler=Batches(len(self.train_set)), num_workers=2)
