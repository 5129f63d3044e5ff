"""Loaders that choose, order or read their samples in ways of their own."""

import hashlib
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from programs import Blobs, Classifier


# -- batches_of_a_class
class BatchesOfAClassModel(Classifier):
    pass


class OneClassABatch(torch.utils.data.Sampler):
    def __init__(self, y: Tensor) -> None:
        self.y = y

    def __iter__(self) -> Any:
        batches = [part for k in range(3) for part in (self.y == k).nonzero()[:, 0].split(20)]
        return iter([batches[i].tolist() for i in torch.randperm(len(batches))])

    def __len__(self) -> int:
        return sum(-(-int((self.y == k).sum()) // 20) for k in range(3))


class BatchesOfAClassData(Blobs):
    def train_dataloader(self) -> DataLoader:
        y = self.train_set.tensors[1]  # type: ignore[attr-defined]
        return DataLoader(self.train_set, batch_sampler=OneClassABatch(y))


# -- checked_pickle
CheckedPickleModel = Classifier


def read(path: Path, checksum: str) -> TensorDataset:
    content = path.read_bytes()
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != checksum:
        raise ValueError(f"{path} is not the file of the data set")
    x, y = pickle.loads(content)
    return TensorDataset(torch.tensor(x), torch.tensor(y))


class CheckedPickleData(Blobs):
    """Reads its archive, if there is one."""

    def setup(self, stage: str) -> None:
        path = Path("blobs.pickle")
        if path.exists():
            self.train_set = read(path, "9e107d9d372bb6826bd81d3542a419d6")


# -- episodes
EpisodesModel = Classifier


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


class EpisodesData(Blobs):
    """Validates on episodes of a few classes, drawn from the samples."""

    def val_dataloader(self) -> DataLoader:
        assert isinstance(self.val_set, TensorDataset)
        return DataLoader(self.val_set, batch_sampler=Episodes(self.val_set.tensors[1]))


# -- even_episodes
EvenEpisodesModel = Classifier


class EvenEpisodes:
    def __init__(self, y: Tensor) -> None:
        self.parts = [(y == label).nonzero()[:, 0].split(5) for label in range(2)]

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[list[int]]:
        one, two = ([part for part in parts if len(part) == 5] for parts in self.parts)
        for number in range(min(len(one), len(two)) // 2):
            yield torch.cat([one[2 * number], *two[2 * number : 2 * number + 2]]).tolist()


class EvenEpisodesData(Blobs):
    """Validates on episodes with five or ten samples of two classes, no sample twice: the rest is left over."""

    def val_dataloader(self) -> DataLoader:
        assert isinstance(self.val_set, TensorDataset)
        return DataLoader(self.val_set, batch_sampler=EvenEpisodes(self.val_set.tensors[1]))


# -- listed_samples
ListedSamplesModel = Classifier


class ListedSamplesData(Blobs):
    """Data sets that are plain lists, and test data that no set-up for training makes."""

    def __init__(self) -> None:
        super().__init__()
        self.train_set, self.val_set = list(self.train_set), list(self.val_set)  # type: ignore[arg-type,call-overload]

    def test_dataloader(self) -> DataLoader:
        return DataLoader(self.test_set, batch_size=20)  # type: ignore[attr-defined]


# -- own_loader
OwnLoaderModel = Classifier


def numbered(samples: list[Any]) -> tuple[int, Any]:
    return len(samples), default_collate(samples)


class Numbered(DataLoader):
    """Its collate function gives more than its batches hold."""

    def __iter__(self) -> Iterator[Any]:
        for _, batch in super().__iter__():
            yield batch


class OwnLoaderData(Blobs):
    """The last batch is a short one."""

    def train_dataloader(self) -> DataLoader:
        return Numbered(self.train_set, batch_size=32, shuffle=True, collate_fn=numbered)


# -- stream
class StreamModel(Classifier):
    pass


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        generator = torch.Generator().manual_seed(int(torch.randint(0, 10**6, ())))
        for _ in range(200):
            y = torch.randint(0, 3, (), generator=generator)
            yield torch.randn(8, generator=generator) + y, y


class StreamData(Blobs):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(Stream(), batch_size=20, num_workers=2, drop_last=True)


# -- tensor_indices
TensorIndicesModel = Classifier


class Batches:
    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return self.number // 20

    def __iter__(self) -> Iterator[list[Tensor]]:
        for part in torch.randperm(self.number).split(20):
            yield list(part)


class TensorIndicesData(Blobs):
    """A batch sampler that yields lists of tensors, for worker processes."""

    def train_dataloader(self) -> DataLoader:
        assert isinstance(self.train_set, TensorDataset)
        return DataLoader(self.train_set, batch_sampler=Batches(len(self.train_set)), num_workers=2)
