"""Training steps that wait for their data."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from torchdoctor.evidence import origins, replay
from torchdoctor.evidence.samples import asks_model, train_loaders, without_workers
from torchdoctor.findings import Defect, Evidence, Finding, NotLookedAt, Place
from torchdoctor.probe import Probe
from torchdoctor.running.machine import load_factor
from torchdoctor.running.subject import Subject

SLOW_LOADER = Defect(
    "slow-loader",
    "warning",
    "The step waits for its data most of the time.",
    section="Performance",
    long=True,
    shown_by=Evidence("measured", "batches and training steps were timed"),
)

_TIMES = 6


def loading_time(
    subject: Subject, ratio: float = 8.0, least_s: float = 0.015, long_ratio: float = 3.0, long_s: float = 0.05
) -> Iterator[Finding | str | NotLookedAt]:
    """Compares the times of batches and steps: a batch of 8 steps and 15 ms keeps training waiting 90 % of the time.

    One that takes 3 steps and 50 ms makes it wait for three quarters. What lies between that and one step is not called
    right: an accelerator, which is not here, may have much shorter steps.

    Slow batches are read six times and the fastest counts: another program may slow the machine for a while, and a data
    set may keep what it has read. Workers share the time between them; samples that the model itself takes part in, as
    played episodes, are beyond them.

    Args:
        subject: the training that has just begun.
        ratio: steps that a batch takes.
        least_s: seconds that it takes then.
        long_ratio: steps that a long batch takes.
        long_s: seconds of a long batch.
    """
    step = _step(subject)
    for loader in train_loaders(subject) if step else ():
        workers = max(1, loader.num_workers)
        seconds = _fastest(_fetch(loader), long_ratio * step * workers)
        if not seconds:
            yield NotLookedAt(SLOW_LOADER, "no batch could be read on its own")
            continue
        share = seconds / workers
        times = f"a batch takes {share * 1e3:.0f} ms, a step {step * 1e3:.0f} ms"
        if share < max(least_s, step):
            yield times
            continue
        limits = (ratio, least_s), (long_ratio, long_s)
        if not any(share >= max(steps * step, least * load_factor()) for steps, least in limits):
            yield NotLookedAt(SLOW_LOADER, f"{times} on this machine, which says little of one with an accelerator")
            continue
        if asks_model(subject, _fetch(loader)):
            continue
        among = f" in each of {workers} workers" if workers > 1 else ""
        message = f"a batch takes {seconds * 1e3:.0f} ms{among}, and a training step {step * 1e3:.1f} ms: "
        together = max(share, step) if loader.num_workers else share + step
        message += f"without the wait an epoch takes {step / together:.0%} of the time"
        fix = "# compute it once, in setup or on disk; or DataLoader(…, num_workers=4, persistent_workers=True)"
        yield Finding(SLOW_LOADER, _place(subject, _fetch(loader)), message, fix)


PROBE = Probe(look=loading_time, defects=(SLOW_LOADER,))


def _fetch(loader: DataLoader) -> Callable[[], Any]:
    """What reads a batch, always the same one; the next one of data that can only be read in order."""
    if loader.batch_sampler is None or isinstance(loader.dataset, IterableDataset):
        return iter(without_workers(loader)).__next__
    numbers = next(iter(loader.batch_sampler), [])
    return lambda: loader.collate_fn([loader.dataset[number] for number in numbers])


def _step(subject: Subject) -> float:
    """Seconds of one training step: the fastest of five, forwards and backwards; 0 if it fails."""

    def step() -> None:
        loss = subject.train(subject.batches[-1])
        if loss is not None and loss.requires_grad:
            loss.sum().backward()

    return subject.seconds if subject.samples is not None else _fastest(step)


def _fastest(function: Callable[[], Any], long_s: float = 0.0) -> float:
    """Seconds of the fastest of some calls, or of the first that is not long; 0 if the first fails or there is none."""
    times: list[float] = []
    while len(times) < _TIMES and min(times, default=long_s) >= long_s:
        start = time.perf_counter()
        try:
            function()
        except Exception:  # of the user's, or the end of the data
            break
        times.append(time.perf_counter() - start)
    return min(times, default=0.0)


def _place(subject: Subject, fetch: Callable[[], Any]) -> Place | None:
    """The user's line in which most of the time passes; for data sets that are all a library's, that of the workers."""
    spent: dict[Place, float] = {}
    last = time.perf_counter()

    def see(place: Place, _: dict[str, Any]) -> bool:  # pragma: no cover - a tracer is not traced
        nonlocal last
        spent[place] = spent.get(place, 0.0) + time.perf_counter() - last
        last = time.perf_counter()
        return False

    replay.trace_lines(fetch, see, times=100_000)
    options = [origins.option(places, "num_workers")[0] for _, places in origins.loaders(subject, "train") if places]
    return max(spent, key=lambda place: spent[place]) if spent else next(iter(options), None)
