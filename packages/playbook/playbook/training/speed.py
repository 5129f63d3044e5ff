"""What `metrics.json` holds of a training's speed: where its time went, what bounded it, and its memory."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from torch import distributed

from playbook.processes import gathered
from playbook.training.loading_stages import loading_stages
from playbook.training.memory_growth import growth_per_step
from playbook.training.series import Series
from playbook.training.timing import Timing
from playbook.training.verdict import Evidence, notes, verdict

LEAST_STEPS = 20  # below, the first steps and their waits are all there is
LEAST_SECONDS = 1.0
MOST_DRAWN = 200  # values of a series in metrics.json


def measured(trainer: Any) -> dict[str, Any]:
    """What bounded a training; empty of one too short to judge, or with another profiler.

    Every process must ask at the same place.

    Args:
        trainer: after the training.
    """
    timing = trainer.profiler
    if not isinstance(timing, Timing):
        return {}
    parts = timing.parts()
    ranks = _per_rank(trainer, {part: seconds / max(1, timing.num_steps) for part, seconds in parts.items()})
    total = sum(parts.values())
    if timing.num_steps < LEAST_STEPS or total < LEAST_SECONDS:
        return {}
    evidence = evidence_of(trainer, timing, parts, ranks)
    bound, advice = verdict(evidence)
    speed: dict[str, Any] = {
        "bound_by": bound,
        "advice": advice,
        "notes": notes(evidence),
        "shares": {part: round(seconds / total, 4) for part, seconds in parts.items()},
        "steps_per_second": round(timing.num_steps / total, 3),
        "step_ms": _quantiles(timing.steps),
        "wait_ms": _quantiles(timing.waits.values),
        "durations_ms": _drawn(timing.durations, 1e3),
        "memory_mib": _memory(timing.memory),
    }
    if ranks:
        speed["ranks_ms"] = [{part: round(1e3 * value, 3) for part, value in rank.items()} for rank in ranks]
    if timing.device is not None:
        speed["device_shares"] = {part: round(value / total, 4) for part, value in evidence.device_seconds.items()}
    return speed


def _per_rank(trainer: Any, step: Mapping[str, float]) -> list[dict[str, float]]:
    """Seconds of each part of a step, of every process; empty of one, or where the processes have ended."""
    if trainer.world_size == 1 or not distributed.is_initialized():
        return []
    return gathered(trainer, dict(step))


def evidence_of(
    trainer: Any, timing: Timing, parts: Mapping[str, float], ranks: Sequence[Mapping[str, float]] = ()
) -> Evidence:
    """What the verdict of a training is judged from.

    Args:
        trainer: that trains or has trained.
        timing: its profiler.
        parts: seconds of each part.
        ranks: seconds of each part of a step in every process.
    """
    loader = trainer.train_dataloader
    option = getattr(getattr(trainer, "datamodule", None), "num_workers", None)
    on_gpu = timing.device is not None and trainer.strategy.root_device.type == "cuda"
    steps, memory = timing.memory.steps, timing.memory.values
    growth = (
        max(growth_per_step(steps, [sample[kind] / 2**20 for sample in memory]) for kind in (0, 1)) if steps else 0.0
    )
    device_seconds = timing.device.finish() if on_gpu and timing.device else {}
    computed_s = device_seconds.get("backward", 0.0) / timing.num_steps if on_gpu else timing.watch.backward_s
    return Evidence(
        seconds=parts,
        step_ms=1e3 * median(timing.steps or [0.0]),
        device=trainer.strategy.root_device.type,
        device_seconds=device_seconds,
        waits=timing.waits.values,
        first_waits=timing.first_waits,
        num_workers=getattr(loader, "num_workers", 0) if option is None else option,
        has_option=option is not None,
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        stages=partial(loading_stages, loader),
        callback=timing.slowest_callback(),
        hook=timing.slowest_hook(),
        num_operators=timing.watch.num_operators,
        backward_s=computed_s,
        ranks=ranks,
        is_sharded="FSDP" in type(trainer.strategy).__name__ or "ModelParallel" in type(trainer.strategy).__name__,
        growth_mib=growth,
        reads=[
            (f"{_relative(file)}:{line}", f"{method}()") for file, line, method in timing.watch.lines_of_every_step()
        ],
    )


def _relative(file: str) -> str:
    path = Path(file)
    return path.relative_to(Path.cwd()).as_posix() if path.is_relative_to(Path.cwd()) else str(path)


def _quantiles(seconds: Sequence[float]) -> dict[str, float]:
    values = sorted(seconds)
    if not values:
        return {}
    places = {"median": 0.5, "p95": 0.95, "p99": 0.99}
    return {name: round(1e3 * values[int(place * len(values))], 3) for name, place in places.items()}


def _drawn(series: Series[float], factor: float) -> list[list[float]]:
    """Step and value, at most MOST_DRAWN of them."""
    every = -(-len(series.steps) // MOST_DRAWN) or 1
    pairs = list(zip(series.steps, series.values, strict=True))[::every]
    return [[step, round(factor * value, 3)] for step, value in pairs]


def _memory(series: Series[tuple[int, int]]) -> dict[str, list[list[float]]]:
    """Steps and MiB, of the process and of the device; nothing of what is not known."""
    memory: dict[str, list[list[float]]] = {}
    for kind, name in enumerate(("process", "device")):
        one: Series[float] = Series()
        one.steps, one.values = series.steps, [sample[kind] for sample in series.values]
        if any(one.values):
            memory[name] = _drawn(one, 2**-20)
    return memory
