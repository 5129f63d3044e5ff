from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class Stream(IterableDataset):
    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[Any]:
        yield from (self.samples[i] for i in range(len(self.samples)))


class Data(Blobs):
    drop_last = True  # here

    def val_dataloader(self) -> DataLoader:
        return DataLoader(Stream(self.val_set), batch_size=32, drop_last=self.drop_last)


class RepairedData(Data):
    drop_last = False
