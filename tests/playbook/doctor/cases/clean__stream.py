from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        generator = torch.Generator().manual_seed(int(torch.randint(0, 10**6, ())))
        for _ in range(200):
            y = torch.randint(0, 3, (), generator=generator)
            yield torch.randn(8, generator=generator) + y, y


class Data(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Stream(), batch_size=20, num_workers=2, drop_last=True)
