from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Sampler

from programs import Blobs, Classifier


class Model(Classifier):
    pass


class Data(Blobs):
    def val_dataloader(self) -> DataLoader:
        return DataLoader(
            self.val_set,
            batch_size=32,
            num_workers=0,
            shuffle=False,
            pin_memory=False,
            drop_last=True,  # here
        )


class RepairedData(Blobs):
    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=25, drop_last=True)


# -- bucket
class BucketModel(Classifier):
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


class BucketData(Blobs):
    keep_rest = False

    def val_dataloader(self) -> DataLoader:
        return DataLoader(
            self.val_set,
            batch_sampler=InBuckets(100, 4, self.keep_rest),  # here
        )


class BucketRepairedData(BucketData):
    keep_rest = True


# -- options
class OptionsModel(Classifier):
    pass


class Options(Blobs):
    def __init__(self, drop_last: bool = True) -> None:
        super().__init__()
        self.options = {
            "batch_size": 48,
            "drop_last": drop_last,  # here
        }

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, **self.options)


class OptionsData(Options):
    pass


class OptionsRepairedData(Options):
    def __init__(self) -> None:
        super().__init__(drop_last=False)


# -- sampler
class SamplerModel(Classifier):
    pass


class SamplerData(Blobs):
    def val_dataloader(self) -> DataLoader:
        part = RandomSampler(self.val_set, num_samples=50)  # type: ignore[arg-type]
        return DataLoader(self.val_set, batch_size=20, sampler=part)  # here


class SamplerRepairedData(Blobs):
    pass


# -- stream
class StreamModel(Classifier):
    pass


class Stream(IterableDataset):
    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[Any]:
        yield from (self.samples[i] for i in range(len(self.samples)))


class StreamData(Blobs):
    drop_last = True  # here

    def val_dataloader(self) -> DataLoader:
        return DataLoader(Stream(self.val_set), batch_size=32, drop_last=self.drop_last)


class StreamRepairedData(StreamData):
    drop_last = False
