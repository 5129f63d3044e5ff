"""Training steps that wait for their data."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import nn
from torch.utils.data import IterableDataset

from playbook.doctor import blame, replay
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.samples import alone, train_loaders
from playbook.doctor.subject import Subject

SLOW_LOADER = Defect(
    "slow-loader",
    "warning",
    "The step waits for its data most of the time.",
    section="Performance",
    long=True,
    shown_by=Evidence("measured", "batches and training steps were timed"),
)
DEFECTS = (SLOW_LOADER,)

_RATIO, _LEAST_S = 8.0, 0.015
_SECONDS = 1.2
_TIMES = 6


def loading_time(subject: Subject) -> Iterator[Finding | str]:
    """Times batches against steps: a batch that takes 8 steps and 15 ms makes the training wait for nine tenths of it.

    Slow batches are read six times and the fastest counts: another program may slow the machine for a while, and a data
    set may keep what it has read. Workers share the time between them; samples that the model itself takes part in, as
    played episodes, are beyond them.
    """
    step = _step(subject)
    for loader in train_loaders(subject) if step else ():
        workers = max(1, loader.num_workers)
        with _calls(subject) as calls:
            fetch, run = _fetch(loader, _RATIO * step * workers)
        if run is None or calls:
            continue
        share = fetch / workers
        if share < _LEAST_S or share < _RATIO * step:
            yield f"a batch takes {share * 1e3:.0f} ms, a step {step * 1e3:.0f} ms"
            continue
        among = f" in each of {workers} workers" if workers > 1 else ""
        message = f"a batch takes {fetch * 1e3:.0f} ms{among}, and a training step {step * 1e3:.1f} ms: "
        together = max(share, step) if loader.num_workers else share + step
        message += f"without the wait an epoch takes {step / together:.0%} of the time"
        fix = "# compute it once, in setup or on disk; or DataLoader(…, num_workers=4, persistent_workers=True)"
        yield Finding(SLOW_LOADER, _hottest(run) or _loader(subject), message, fix)


@contextmanager
def _calls(subject: Subject) -> Iterator[list[nn.Module]]:
    """The parts of the model, or of another one of its class, that are called while the context lasts."""
    parts, called = set(subject.model.modules()), list[nn.Module]()

    def enter(module: nn.Module, _: Any) -> None:
        if module in parts or type(module) is type(subject.model):
            called.append(module)

    hook = nn.modules.module.register_module_forward_pre_hook(enter)
    try:
        yield called
    finally:
        hook.remove()


def _fetch(loader: Any, long: float) -> tuple[float, Callable[[], Any] | None]:
    """Seconds for a batch, and what fetches one; nothing of a loader without batches."""
    if loader.batch_sampler is None or isinstance(loader.dataset, IterableDataset):
        return _stream(loader), partial(_first, loader)
    numbers = next(iter(loader.batch_sampler), None)
    if numbers is None:
        return 0.0, None
    run = partial(_collated, loader, numbers)
    fetch, times = _timed(run), 1
    while fetch > long and times < _TIMES:  # a busy machine slows some of them
        fetch, times = min(fetch, _timed(run)), times + 1
    return fetch, run


def _first(loader: Any) -> Any:
    return next(iter(loader))


def _collated(loader: Any, numbers: list[int]) -> Any:
    return loader.collate_fn([loader.dataset[number] for number in numbers])


def _step(subject: Subject) -> float:
    """Seconds of one training step: the fastest of five, forwards and backwards; 0 if it fails."""

    def step() -> None:
        loss = subject.train(subject.batches[-1])
        if loss is not None and loss.requires_grad:
            loss.sum().backward()

    if subject.samples is not None:
        return subject.seconds
    try:
        return min(_timed(step) for _ in range(5))
    except (RuntimeError, ValueError, IndexError):
        return 0.0


def _timed(function: Any) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _stream(loader: Any) -> float:
    """Seconds for a batch of data that can only be read in order, without the first."""
    batches, spent, start = iter(alone(loader)), [], time.perf_counter()
    while len(spent) < 4 and time.perf_counter() - start < _SECONDS:
        before = time.perf_counter()
        if next(batches, None) is None:
            break
        spent.append(time.perf_counter() - before)
    return min(spent, default=0.0)


def _loader(subject: Subject) -> Place | None:
    """Where the loader gets its workers, for data sets that are all a library's."""
    return next(
        (blame.option(places, "num_workers")[0] for _, places in blame.loaders(subject, "train") if places), None
    )


def _hottest(run: Any) -> Place | None:
    """The user's line in which most of the time passes."""
    spent: dict[Place, float] = {}
    last = [time.perf_counter()]

    def see(place: Place, _: dict[str, Any]) -> bool:  # pragma: no cover - a tracer is not traced
        now = time.perf_counter()
        spent[place] = spent.get(place, 0.0) + now - last[0]
        last[0] = time.perf_counter()
        return False

    replay.lines(run, see, times=100_000)
    return max(spent, key=lambda place: spent[place], default=None)
