"""Validates on episodes of a few classes, drawn from the samples."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from tests.playbook.doctor.programs import Blobs
from tests.playbook.doctor.programs import Classifier as Model

__all__ = ["Model"]


class Episodes:
    def __init__(self, y: Tensor) -> None:
        self.y = y

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(0)
        for _ in range(len(self)):
            parts = [(self.y == label).nonzero()[:, 0] for label in range(3)]
            yield torch.cat([part[torch.randperm(len(part), generator=generator)[:5]] for part in parts]).tolist()


class Data(Blobs):
    def val_dataloader(self) -> DataLoader:
        assert isinstance(self.val_set, TensorDataset)
        return DataLoader(self.val_set, batch_sampler=Episodes(self.val_set.tensors[1]))
