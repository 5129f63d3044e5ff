from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, default_collate

from tests.playbook.doctor.programs import Blobs
from tests.playbook.doctor.programs import Classifier as Model

__all__ = ["Model"]


def numbered(samples: list[Any]) -> tuple[int, Any]:
    return len(samples), default_collate(samples)


class Numbered(DataLoader):
    """Its collate function gives more than its batches hold."""

    def __iter__(self) -> Iterator[Any]:
        for _, batch in super().__iter__():
            yield batch


class Data(Blobs):
    """The last batch is a short one."""

    def train_dataloader(self) -> DataLoader:
        return Numbered(self.train_set, batch_size=32, shuffle=True, collate_fn=numbered)
