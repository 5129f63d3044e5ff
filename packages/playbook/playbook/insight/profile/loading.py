"""How many samples a second each stage of loading yields: reading, decoding, augmenting, collating, and the whole."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from playbook.batches import num_samples
from playbook.data.files import file_of
from playbook.data.loader import Loader
from playbook.data.order import SeededSamples
from playbook.errors import UserError

SECONDS = 2.0  # of each stage at most
MOST_SAMPLES = 2048


@dataclass(frozen=True)
class Stage:
    """One stage, or the whole loader.

    Args:
        name: of the stage.
        samples_per_second: that it yields alone.
        num_samples: that were measured.
    """

    name: str
    samples_per_second: float
    num_samples: int


def stages(datamodule: Any, model: Any) -> list[Stage]:
    """Measures the training loader, stage by stage, in this process, then as a whole with several workers.

    Files come from the memory of the operating system where they were read before.

    Args:
        datamodule: after its setup; None if the model has its own loader.
        model: the LightningModule.

    Raises:
        UserError: there is no DataLoader of training data.
    """
    loader = _loader(datamodule, model)
    measured = [] if isinstance(loader.dataset, IterableDataset) else _inner(loader)
    own = getattr(datamodule, "num_workers", None)
    if not isinstance(own, int):
        return [*measured, _whole(loader, loader.num_workers)]
    try:
        for number in sorted({0, own, min(2, os.cpu_count() or 1), os.cpu_count() or 1}):
            datamodule.num_workers = number
            measured.append(_whole(_loader(datamodule, model), number))
    finally:
        datamodule.num_workers = own
    return measured


def _loader(datamodule: Any, model: Any) -> Any:
    source = model if datamodule is None else datamodule
    loader = source.train_dataloader()
    if not isinstance(loader, DataLoader):
        raise UserError(f"--only data: {type(source).__name__}.train_dataloader() returned no single DataLoader")
    return loader


def _inner(loader: Any) -> list[Stage]:
    """The stages before the loader: a data set that gives whole batches has one, others several."""
    dataset = loader.samples if isinstance(loader, Loader) else loader.dataset
    keys = _keys(loader)
    if not keys:
        return []
    size = max(1, loader.batch_size or len(keys))
    if hasattr(type(dataset), "__getitems__"):
        batches = [keys[start : start + size] for start in range(0, len(keys), size)]
        return [_timed("batches of the data set", batches, dataset.__getitems__, len)]
    measured, plain, samples_of = [], dataset, dataset.__getitem__
    if isinstance(dataset, SeededSamples):
        plain = dataset.dataset
    indices: list[Any] = [key[1] if isinstance(key, tuple) and plain is not dataset else key for key in keys]
    files = [file for index in indices if (file := file_of(plain, index)) is not None]
    if files:
        measured.append(_timed("read the files", files, lambda file: Path(file).read_bytes()))
    measured.append(_timed("read and decode" if files else "samples of the data set", indices, plain.__getitem__))
    if isinstance(dataset, SeededSamples) and dataset.augment is not None:
        measured.append(_timed("the same, augmented", keys, samples_of))
    samples = [samples_of(key) for key in keys[:size]]
    collate = getattr(loader.collate_fn, "collate", loader.collate_fn)
    measured.append(_timed("collate", [samples] * 1000, collate, len))
    return measured


def _keys(loader: Any) -> list[Any]:
    """What the sampler asks the data set for, at the beginning of an epoch."""
    if loader.batch_sampler is None:
        return list(islice(iter(loader.sampler), MOST_SAMPLES))
    keys: list[Any] = []
    for batch in loader.batch_sampler:
        keys += batch
        if len(keys) >= MOST_SAMPLES:
            break
    return keys[:MOST_SAMPLES]


def _timed(
    name: str, items: Sequence[Any], act: Callable[[Any], object], count: Callable[[Any], int] = lambda _: 1
) -> Stage:
    act(items[0])  # what it does once
    number, began = 0, time.perf_counter()
    for item in items:
        act(item)
        number += count(item)
        if time.perf_counter() - began > SECONDS:
            break
    return Stage(name, number / (time.perf_counter() - began), number)


def _whole(loader: Iterable[Any], num_workers: int) -> Stage:
    """The loader from its second batch on; an epoch that is over begins again."""
    number, began = 0, 0.0
    deadline = time.perf_counter() + 3 * SECONDS
    while not number or time.perf_counter() < deadline:
        before = number
        for batch in loader:
            if not began:
                began = time.perf_counter()
                deadline = began + SECONDS
                continue
            number += num_samples(batch) or 1
            if time.perf_counter() > deadline:
                break
        if number == before:  # a single batch, or none
            break
    seconds = time.perf_counter() - began
    if not number:
        raise UserError("--only data: an epoch has fewer than two batches, which is too short to be timed")
    plural = "" if num_workers == 1 else "s"
    return Stage(f"whole loader, {num_workers or 'no'} worker{plural}", number / seconds, number)
