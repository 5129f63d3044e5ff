"""Worker processes that draw the same random numbers."""

import ast
import inspect
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from playbook.doctor import blame, source
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.samples import base, leaves, size
from playbook.doctor.subject import Subject

DUPLICATE_WORKER_RNG = Defect(
    "duplicate-worker-rng",
    "warning",
    "Workers repeat each other's augmentation: less variety than is paid for.",
    shown_by=Evidence("experiment", "the same sample was read several times in two worker processes"),
)
DEFECTS = (DUPLICATE_WORKER_RNG,)

_DRAWS = 4
_GENERATORS = (np.random.RandomState, np.random.Generator, torch.Generator, random.Random)


def worker_rng(subject: Subject) -> Iterator[Finding | str]:
    """Reads one training sample four times in each of two real workers, started as the user's loader starts them.

    Random samples that come in the same order from both mean that the workers' random states are equal. PyTorch gives
    every worker its own state of torch, random and numpy.random; a generator that the data set holds is copied as it
    is, and a worker_init_fn can make all states equal again.
    """
    for loader, places in blame.loaders(subject, "train"):
        if not loader.num_workers:
            continue
        first, second = _draws(loader)
        both = min(len(first), len(second))
        if both < 2 or not any(not _equal(first[0], item) for item in first[1:]):
            yield "samples are not random in the workers"
            continue
        same = sum(_equal(one, two) for one, two in zip(first, second, strict=False))
        if same < both:
            yield "workers draw different random numbers"
            continue
        place, fix = _place(loader)
        message = f"{same} of {both} random samples of one worker are equal to the other's, in the same order"
        yield Finding(DUPLICATE_WORKER_RNG, place or (places[0] if places else None), message, fix)


def _draws(loader: DataLoader) -> tuple[list[Any], list[Any]]:
    """What the first and the second worker give."""
    options: dict[str, Any] = {"num_workers": 2, "worker_init_fn": loader.worker_init_fn, "collate_fn": _as_they_are}
    if loader.multiprocessing_context is not None:
        options["multiprocessing_context"] = "fork"
    if isinstance(loader.dataset, IterableDataset):
        again = DataLoader(loader.dataset, batch_size=1, **options)
    elif size(loader.dataset):
        again = DataLoader(loader.dataset, batch_size=1, sampler=[0] * 2 * _DRAWS, **options)
    else:
        return [], []
    found = []
    for item in again:
        found.append(leaves(item))
        if len(found) == 2 * _DRAWS:
            break
    return found[::2], found[1::2]


def _as_they_are(items: list[Any]) -> Any:
    return items[0]


def _equal(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[path], two[path]) for path in one)


def _place(loader: DataLoader) -> tuple[Place | None, str]:
    """The user's worker_init_fn if it is that, or where the generator is made that the data set draws from."""
    if loader.worker_init_fn is not None:
        loader.worker_init_fn, own = None, loader.worker_init_fn
        alone = _draws(loader)
        function = source.body(own)
        if function is not None and not all(map(_equal, *alone)):
            seeds = list(
                source.calls(function[1], "seed", "manual_seed", "seed_everything", "default_rng", "RandomState")
            )
            line = min([call.lineno for call in seeds], default=getattr(function[1], "lineno", 0))
            return Place(
                function[0], line
            ), "np.random.seed(torch.initial_seed() % 2**32)  # differs from worker to worker"
    dataset: Any = base(loader.dataset)
    fix = "shift = int(torch.randint(0, 8, ()))  # torch's own state differs from worker to worker"
    known = getattr(dataset, "__dict__", {})  # none of a list
    for owner in (dataset, *[value for value in known.values() if hasattr(value, "__dict__")]):
        for name, value in getattr(owner, "__dict__", {}).items():
            if isinstance(value, _GENERATORS):
                return source.assignment(owner, name) or source.definition(type(owner)), fix
    return _of_module(type(dataset)), fix


def _of_module(cls: type) -> Place | None:
    """A generator at the top of the file; else the first line that draws."""
    module = sys.modules.get(cls.__module__)
    held = {name for name, value in vars(module or cls).items() if isinstance(value, _GENERATORS)}
    file = inspect.getsourcefile(cls) if source.definition(cls) else None
    for statement in source.tree(file).body if file else ():
        if isinstance(statement, ast.Assign) and {ast.unparse(target) for target in statement.targets} & held:
            return Place(file or "", statement.lineno)
    return source.definition(getattr(cls, "__getitem__", getattr(cls, "__iter__", cls)))
