"""Samples, or failures in their place, which name the sample and the file that could not be loaded."""

import multiprocessing
import os
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset, get_worker_info

from playbook.data.files import file_of
from playbook.data.order import SeededSamples
from playbook.errors import UserError

MAX_TRIES = 100  # samples after a training batch of which none loads


class Failure:
    """Stands for a sample that could not be loaded: an exception itself would lose its text on its way to a worker."""

    def __init__(self, name: str, index: int, text: str, trace: str) -> None:
        self.name = f"{name} {index}"
        self.index = index
        self.text = text
        self.trace = trace


class Gathered(list[Tensor]):
    """A batch that needs no collating, as it was taken out of tensors at once."""


class GuardedSamples(Dataset):
    """Samples, or failures in their place; the main process can see which sample each worker is loading.

    Args:
        dataset: samples by index; a training set may take (epoch, index, draw).
        name: of the set in messages, such as `train`.
        num_workers: loader processes.
        fills: whether a batch that would be empty gets the next sample that can be loaded.
        gathers: whether batches of a TensorDataset are taken at once, as a list of tensors.
    """

    def __init__(self, dataset: Any, name: str, num_workers: int, fills: bool, gathers: bool = False) -> None:
        self.dataset = dataset
        self.name = name
        self.fills = fills
        self.take = batches_of(dataset) if gathers else None
        self.in_hand = multiprocessing.RawArray("q", [-1] * num_workers)  # by worker, in shared memory

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, keys: list[Any]) -> list[Any]:
        if self.take is not None:
            return Gathered(self.take(*rows_of(keys)))
        samples = [self[key] for key in keys]
        for step in range(1, 1 + MAX_TRIES if self.fills else 0):
            if not all(isinstance(sample, Failure) for sample in samples):
                break
            index = (index_of(keys[-1]) + step) % len(self)
            samples.append(self[(keys[-1][0], index, index) if isinstance(keys[-1], tuple) else index])
        return samples

    def __getitem__(self, key: Any) -> Any:
        worker = get_worker_info() if self.in_hand else None
        if worker is not None:
            self.in_hand[worker.id] = index_of(key)
        try:
            return self.dataset[key]
        except Exception as error:  # whatever the user's data set raises
            index = index_of(key)
            file = getattr(error, "filename", None) or file_of(self.dataset, index)
            cause = _cause(error).removeprefix(f"{file}: ")  # which the place names already
            return Failure(self.name, index, f"{self.describe(index, file)}: {cause}", _trace(error))
        finally:
            if worker is not None:
                self.in_hand[worker.id] = -1

    def describe(self, index: int, file: Any = None) -> str:
        names = getattr(self.dataset, "names", None)  # of rows, such as list.csv:17
        file = file or file_of(self.dataset, index) or (names[index] if names else None)
        return f"{self.name} sample {index}" + (f" ({file})" if file else "")

    def place(self, worker: int) -> str:
        """« at train sample 17 (17.png)» for a worker, or nothing while it has none in hand."""
        index = self.in_hand[worker]
        return "" if index < 0 else f" at {self.describe(index)}"


class GuardedBatches(GuardedSamples):
    """Batches of a data set that holds its samples in memory already: none of them can fail to load."""

    def __getitems__(self, keys: list[Any]) -> Any:
        return self.dataset.__getitems__(keys)


def batches_of(dataset: Any) -> Callable[[int, Tensor], list[Tensor]] | None:
    """What takes whole batches out of a data set that holds its samples in tensors, by the epoch and rows (B, 2)."""
    if type(dataset) is TensorDataset:
        dataset = SeededSamples(dataset, seed=0)
    return dataset.take if type(dataset) is SeededSamples and dataset.takes_batches() else None


def rows_of(keys: list[Any]) -> tuple[int, Tensor]:
    """Epoch, and index and draw of each sample, (B, 2), from what a sampler yields."""
    keys = [key if isinstance(key, tuple) else (0, key, key) for key in keys]
    return keys[0][0], torch.tensor([key[1:] for key in keys])


def find_failures(dataset: Any, name: str) -> list[Failure]:
    """Loads every sample once, in threads: decoders of images do not hold Python's lock.

    Args:
        dataset: data set with a length.
        name: name of the split, for messages.
    """
    samples = GuardedSamples(dataset, name, num_workers=0, fills=False)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:
        failures = threads.map(lambda index: _failure(samples[index]), range(len(samples)))
        return [failure for failure in failures if failure is not None]


def _failure(sample: Any) -> Failure | None:
    return sample if isinstance(sample, Failure) else None


def _cause(error: Exception) -> str:
    text = getattr(error, "strerror", None) or " ".join(str(error).split())
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}".removesuffix(": ")


def _trace(error: Exception) -> str:
    """The traceback from the data set on; nothing where a file or the data set itself says what is wrong."""
    if isinstance(error, OSError | UserError) or error.__traceback__ is None:
        return ""
    return "\n" + "".join(traceback.format_exception(type(error), error, error.__traceback__.tb_next))


def index_of(key: Any) -> int:
    """The index of a sample in its data set, from what a sampler yields."""
    return int(key[1] if isinstance(key, tuple) else key)


class CollateLoaded:
    """Takes the failures out of a batch before it is collated; both go to the main process."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, samples: list[Any]) -> tuple[Any, list[Failure]]:
        if isinstance(samples, Gathered):
            return list(samples), []
        failures = [sample for sample in samples if isinstance(sample, Failure)]
        if failures:
            samples = [sample for sample in samples if not isinstance(sample, Failure)]
        return (self.collate(samples) if samples else None), failures


def unfailing(batch: Any) -> tuple[Any, list[Failure]]:
    """A batch of a data set that holds its samples in memory, and no failure."""
    return batch, []
