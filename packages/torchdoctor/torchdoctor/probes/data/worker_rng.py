"""Worker processes that draw the same random numbers."""

import pickle
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from torchdoctor import source
from torchdoctor.evidence import origins
from torchdoctor.evidence.samples import dataset_size, leaves, spread_indices, underlying_dataset
from torchdoctor.findings import Defect, Evidence, Finding, NotLookedAt, Place
from torchdoctor.probe import Probe
from torchdoctor.running.subject import Subject

DUPLICATE_WORKER_RNG = Defect(
    "duplicate-worker-rng",
    "warning",
    "Workers repeat each other's augmentation: less variety than is paid for.",
    shown_by=Evidence("experiment", "the same sample was read several times in two worker processes"),
)

_DRAWS, _MANY = 4, 16  # of each sample in each worker: at first, and where some of those were equal
_ITEMS = 3  # samples that are read, as one alone may be one that is never augmented
_GENERATORS = (np.random.RandomState, np.random.Generator, torch.Generator, random.Random)
_SEEDING = ("seed", "manual_seed", "seed_everything", "default_rng", "RandomState")
_DEPTH = 4  # of objects within a data set that are searched for generators
Samples = list[dict[str, Tensor]]


def worker_rng(subject: Subject, chance: float = 1e-4) -> Iterator[Finding | str | NotLookedAt]:
    """Reads some training samples several times in each of two real workers, started as the user's loader starts them.

    Random samples that come in the same order from both mean that the workers' random states are equal, unless chance
    does it: where four are equal, more are drawn, and draws of which most are alike prove nothing. PyTorch gives
    every worker its own state of torch, random and numpy.random; a generator that the data set holds is copied as it
    is, and a worker_init_fn can make all states equal again. Such a generator may stand beside draws that differ: where
    samples differ, they are read again with PyTorch's three states set to the same values before each. What is still
    random then comes from a generator of the data set's own.

    Args:
        subject: the training that has just begun.
        chance: probability that draws of independent workers are all equal.
    """
    for loader, places in origins.loaders(subject, "train"):
        if loader.num_workers:
            outcome = _compare_workers(loader, chance)
            if isinstance(outcome, Finding):
                outcome = replace(outcome, place=outcome.place or next(iter(places), None))
            yield outcome


PROBE = Probe(look=worker_rng, defects=(DUPLICATE_WORKER_RNG,))


def _compare_workers(loader: DataLoader, chance: float) -> Finding | str | NotLookedAt:
    """What the draws of two workers show."""
    first, second = _draws(loader, loader.worker_init_fn)
    if all(map(_is_equal, first, second)):  # as coins may fall
        first, second = _draws(loader, loader.worker_init_fn, _MANY)
    if len(second) < 2:
        return NotLookedAt(DUPLICATE_WORKER_RNG, "the workers' data set has too few samples, or no length")
    is_stream = isinstance(loader.dataset, IterableDataset)
    if not is_stream and not any(len(_unequal(draws)) > 1 for draws in _draws_by_sample(first)):
        return "samples are not random in the workers"
    if all(map(_is_equal, first, second)):
        if _chance(first) >= chance:
            return NotLookedAt(
                DUPLICATE_WORKER_RNG, "most draws of a sample are alike, so that equal ones may be chance"
            )
        return _finding(loader, len(second))
    if is_stream and _holds_generators(loader.dataset):
        return NotLookedAt(DUPLICATE_WORKER_RNG, "the workers read other parts of the data, as it is a stream")
    if not is_stream:
        first, second = (each[_ITEMS:] for each in _draws(loader, loader.worker_init_fn, _MANY, fixed=True))
        if second and all(map(_is_equal, first, second)) and _chance(first) < chance:
            return _finding(loader, len(second), is_fixed=True)
    return "workers draw different random numbers"


def _finding(loader: DataLoader, number: int, is_fixed: bool = False) -> Finding:
    message = f"{number} of {number} random samples of one worker are equal to the other's, in the same order"
    if is_fixed:
        message += ", where PyTorch's own random states are left out"
    init = loader.worker_init_fn
    if not is_fixed and init is not None and not all(map(_is_equal, *_draws(loader, None))):
        place = source.first_call([init], *_SEEDING) or source.definition(init)
        fix = "np.random.seed(torch.initial_seed() % 2**32)  # differs from worker to worker"
        values = {"variant": "seed"}
    else:
        place = _generator(underlying_dataset(loader.dataset))
        fix = "shift = int(torch.randint(0, 8, ()))  # torch's own state differs from worker to worker"
        values = {}
    return Finding(DUPLICATE_WORKER_RNG, place, message, fix, values)


def _draws_by_sample(samples: Samples) -> list[Samples]:
    """The draws of each sample, of a worker that has read one after another in turns."""
    return [samples[number::_ITEMS] for number in range(_ITEMS)]


def _unequal(samples: Samples) -> Samples:
    """Samples of which no two are equal."""
    different: Samples = []
    for sample in samples:
        if not any(_is_equal(sample, other) for other in different):
            different.append(sample)
    return different


def _chance(samples: Samples) -> float:
    """How likely as many independent draws of two workers are all equal, by how often these are equal to each other."""
    chance = 1.0
    for draws in filter(None, _draws_by_sample(samples)):
        num_equal = sum(_is_equal(one, two) for one in draws for two in draws)
        chance *= (num_equal / len(draws) ** 2) ** len(draws)
    return chance


def _draws(loader: DataLoader, init: Any, number: int = _DRAWS, fixed: bool = False) -> tuple[Samples, Samples]:
    """What the first and the second worker give: so many of each sample, in turns.

    Args:
        loader: of the user's.
        init: for the workers.
        number: of draws of each sample.
        fixed: whether PyTorch's own random states are the same before each draw but the first.
    """
    is_stream = isinstance(loader.dataset, IterableDataset)
    items = spread_indices(loader.dataset, _ITEMS) if not is_stream and dataset_size(loader.dataset) else []
    if not is_stream and not items:
        return [], []
    items = (items * _ITEMS)[:_ITEMS]
    again = DataLoader(
        _Fixed(loader.dataset) if fixed else loader.dataset,
        sampler=None if is_stream else [item for item in items * number for _ in range(2)],
        num_workers=2,
        worker_init_fn=init,
        collate_fn=_as_bytes,
        multiprocessing_context=loader.multiprocessing_context and "fork",
    )
    batches = again._get_iterator()  # by iter() a script's loaders run without workers in a review
    samples = [pickle.loads(content) for content in islice(batches, 2 * number * _ITEMS)]  # noqa: S301 - our own
    return samples[: len(samples) // 2 * 2 : 2], samples[1::2]


class _Fixed(Dataset):
    """A data set of which each sample but a worker's first is read with the same random states of PyTorch's.

    What is seeded at the first reading, by the worker's own seed, is seeded then. A `worker_init_fn` finds and sets the
    attributes of the user's data set.
    """

    def __init__(self, dataset: Any) -> None:
        vars(self).update(dataset=dataset, is_begun=False)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self).get("dataset"), name)  # none yet where a copy is made

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.dataset, name, value)

    def __getitem__(self, number: Any) -> Any:
        if self.is_begun:
            seed = torch.initial_seed()
            for set_seed in (random.seed, np.random.seed, torch.manual_seed):
                set_seed(0)
            torch.initial_seed = lambda: seed  # of the worker, which a program may ask for at each sample
        vars(self)["is_begun"] = True
        return self.dataset[number]


def _as_bytes(items: list[Any]) -> bytes:
    """A sample's tensors, which workers would otherwise pass on by sockets, as a script in a review has none."""
    return pickle.dumps(leaves(items[0]))


def _is_equal(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[path], two[path]) for path in one)


def _holds_generators(thing: Any, depth: int = _DEPTH) -> bool:
    """Whether an object, or something in it, is a generator of random numbers."""
    if isinstance(thing, _GENERATORS):
        return True
    items = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, list | tuple) else ()
    parts = [*list(items)[:_MANY], *getattr(thing, "__dict__", {}).values()] if depth else []
    return any(_holds_generators(part, depth - 1) for part in parts)


def _generator(dataset: Any) -> Place | None:
    """Where the generator is made that a data set, or something in it, holds; else where samples are."""
    attributes = getattr(dataset, "__dict__", {}).values()  # none of a list
    for owner in (dataset, *[value for value in attributes if hasattr(value, "__dict__")]):
        for name, value in getattr(owner, "__dict__", {}).items():
            if isinstance(value, _GENERATORS):
                return source.assignment(owner, name) or source.definition(type(owner))
    cls = type(dataset)
    return source.definition(getattr(cls, "__getitem__", getattr(cls, "__iter__", cls)))
