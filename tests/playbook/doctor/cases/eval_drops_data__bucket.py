from collections.abc import Iterator

from torch.utils.data import DataLoader, Sampler

from tests.playbook.doctor.programs import Blobs, Classifier


class Model(Classifier):
    pass


class InBuckets(Sampler):
    """Batches of samples whose numbers leave the same rest."""

    def __init__(self, number: int, size: int, keep_rest: bool) -> None:
        self.buckets = [range(rest, number, 7) for rest in range(7)]
        self.size = size
        self.keep_rest = keep_rest

    def __iter__(self) -> Iterator[list[int]]:
        for bucket in self.buckets:
            batches = [list(bucket[start : start + self.size]) for start in range(0, len(bucket), self.size)]
            yield from (batch for batch in batches if self.keep_rest or len(batch) == self.size)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Data(Blobs):
    keep_rest = False

    def val_dataloader(self) -> DataLoader:
        return DataLoader(
            self.val_set,
            batch_sampler=InBuckets(100, 4, self.keep_rest),  # here
        )


class RepairedData(Data):
    keep_rest = True
