"""Worker processes that draw the same random numbers."""

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from torchdoctor import blame, source
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.samples import base, leaves, size
from torchdoctor.subject import Subject

DUPLICATE_WORKER_RNG = Defect(
    "duplicate-worker-rng",
    "warning",
    "Workers repeat each other's augmentation: less variety than is paid for.",
    shown_by=Evidence("experiment", "the same sample was read several times in two worker processes"),
)

_DRAWS, _MANY = 4, 16  # of each worker: at first, and where some of those were equal
_CHANCE = 1e-4  # that draws of independent workers are all equal
_GENERATORS = (np.random.RandomState, np.random.Generator, torch.Generator, random.Random)
_SEEDING = ("seed", "manual_seed", "seed_everything", "default_rng", "RandomState")


def worker_rng(subject: Subject) -> Iterator[Finding | str]:
    """Reads one training sample several times in each of two real workers, started as the user's loader starts them.

    Random samples that come in the same order from both mean that the workers' random states are equal, unless chance
    does it: where four are equal, more are drawn, and draws of which most are alike prove nothing. PyTorch gives
    every worker its own state of torch, random and numpy.random; a generator that the data set holds is copied as it
    is, and a worker_init_fn can make all states equal again.
    """
    for loader, places in blame.loaders(subject, "train"):
        if not loader.num_workers:
            continue
        first, second = _draws(loader, loader.worker_init_fn)
        if all(map(_is_equal, first, second)):  # as coins may fall
            first, second = _draws(loader, loader.worker_init_fn, _MANY)
        if len(second) < 2 or all(_is_equal(first[0], sample) for sample in first[1:]):
            yield "samples are not random in the workers"
            continue
        same = sum(map(_is_equal, first, second))
        if same < len(second):
            yield "workers draw different random numbers"
            continue
        if _chance(first) >= _CHANCE:
            continue
        message = f"{same} of {len(second)} random samples of one worker are equal to the other's, in the same order"
        if loader.worker_init_fn is not None and not all(map(_is_equal, *_draws(loader, None))):
            seeding = source.first_call([loader.worker_init_fn], *_SEEDING)
            place = seeding or source.definition(loader.worker_init_fn)
            fix = "np.random.seed(torch.initial_seed() % 2**32)  # differs from worker to worker"
        else:
            place = _generator(base(loader.dataset))
            fix = "shift = int(torch.randint(0, 8, ()))  # torch's own state differs from worker to worker"
        yield Finding(DUPLICATE_WORKER_RNG, place or next(iter(places), None), message, fix)


def _chance(samples: list[dict[str, Tensor]]) -> float:
    """How likely as many independent draws of two workers are all equal, by how often these are equal to each other."""
    num_equal = sum(_is_equal(one, two) for one in samples for two in samples)
    return (num_equal / len(samples) ** 2) ** len(samples)


def _draws(
    loader: DataLoader, init: Any, number: int = _DRAWS
) -> tuple[list[dict[str, Tensor]], list[dict[str, Tensor]]]:
    """What the first and the second worker give, as many samples of each."""
    is_stream = isinstance(loader.dataset, IterableDataset)
    if not is_stream and not size(loader.dataset):
        return [], []
    again = DataLoader(
        loader.dataset,
        sampler=None if is_stream else [0] * 2 * number,
        num_workers=2,
        worker_init_fn=init,
        collate_fn=_as_they_are,
        multiprocessing_context=loader.multiprocessing_context and "fork",
    )
    samples = [leaves(sample) for sample in islice(again, 2 * number)]
    return samples[: len(samples) // 2 * 2 : 2], samples[1::2]


def _as_they_are(items: list[Any]) -> Any:
    return items[0]


def _is_equal(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[path], two[path]) for path in one)


def _generator(dataset: Any) -> Place | None:
    """Where the generator is made that a data set, or something in it, holds; else where samples are."""
    held = getattr(dataset, "__dict__", {}).values()  # none of a list
    for owner in (dataset, *[value for value in held if hasattr(value, "__dict__")]):
        for name, value in getattr(owner, "__dict__", {}).items():
            if isinstance(value, _GENERATORS):
                return source.assignment(owner, name) or source.definition(type(owner))
    cls = type(dataset)
    return source.definition(getattr(cls, "__getitem__", getattr(cls, "__iter__", cls)))
