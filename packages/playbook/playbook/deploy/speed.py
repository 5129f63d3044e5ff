"""Latency and throughput of a program: eager, compiled and exported, in turns."""

import platform
import statistics
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

from playbook.deploy.formats import quiet
from playbook.deploy.program import Inputs, Program
from playbook.deploy.runtime.engines import Engine

ROUNDS = 7
LEAST_S = 0.05  # per round and way, so that short calls are repeated
BATCHES = (1, 32)


def measure_speed(program: Program, engine: Engine, label: str, compiles: bool = True) -> list[dict[str, Any]]:
    """Medians over rounds in which all ways take turns.

    Args:
        program: the module and its inputs.
        engine: the exported program.
        label: its name in the table.
        compiles: whether to measure torch.compile, which may take a minute.

    Returns:
        For each way and batch size: `way`, `batch`, `milliseconds` and `samples_per_second`.
    """
    rows = []
    for size in BATCHES:
        inputs = resized(program, size)
        arrays = {name: value.numpy() for name, value in inputs.items()}
        ways: dict[str, Callable[[], Any]] = {"eager": lambda inputs=inputs: program.run(inputs)}
        if (like_last := channels_last(program, inputs)) is not None:
            ways["eager, channels last"] = like_last
        if compiles and (compiled := _compiled(program, inputs)) is not None:
            ways["compiled"] = compiled
        ways[label] = lambda arrays=arrays: engine(arrays)
        for way, seconds in medians(ways).items():
            figures = {"milliseconds": round(1000 * seconds, 4), "samples_per_second": round(size / seconds, 1)}
            rows.append({"way": way, "batch": size, **figures})
    return rows


def processor() -> str:
    """Name of the CPU, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def medians(ways: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median seconds per call of each way, measured in turns."""
    repeats = {}
    for way, call in ways.items():
        call()
        start = time.perf_counter()
        call()
        repeats[way] = max(1, round(LEAST_S / max(time.perf_counter() - start, 1e-6)))
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, call in ways.items():
            start = time.perf_counter()
            for _ in range(repeats[way]):
                call()
            times[way].append((time.perf_counter() - start) / repeats[way])
    return {way: statistics.median(values) for way, values in times.items()}


def resized(program: Program, size: int) -> Inputs:
    """A batch of this many samples, repeated as needed."""
    batch = program.batches[0]
    count = len(next(iter(batch.values())))
    rows = torch.arange(size) % count
    return {name: value[rows].contiguous() for name, value in batch.items()}


def channels_last(program: Program, inputs: Inputs) -> Callable[[], Any] | None:
    """The module with its convolutions in PyTorch's faster memory format, if it has images."""
    if not all(value.ndim == 4 for value in inputs.values()):
        return None
    module: Any = deepcopy(program.module).to(memory_format=torch.channels_last)
    images = {name: value.to(memory_format=torch.channels_last) for name, value in inputs.items()}

    def call() -> Any:
        with torch.inference_mode():
            return module(**images)

    return call


def _compiled(program: Program, inputs: Inputs) -> Callable[[], Any] | None:
    """The compiled module, or None where it cannot be compiled."""
    compiled: Any = torch.compile(program.module)

    def call() -> Any:
        with torch.inference_mode():
            return compiled(**inputs)

    try:
        with quiet():
            call()
    except Exception:  # of any kind: no compiler, or a net that Dynamo does not take; the table then lacks the row
        return None
    return call
