"""What the parts share: their setting, times of variants that alternate, and figures made of them."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import yaml

ROOT = Path(__file__).parents[4]
Value = TypeVar("Value")


@dataclass(frozen=True)
class Setting:
    """Where and how a part is measured.

    Args:
        device: that it runs on.
        is_tiny: whether to take sizes that only prove the code.
        deadline: by `time.monotonic`, when the process is ended.
    """

    device: torch.device
    is_tiny: bool
    deadline: float

    @classmethod
    def of(cls, device: str, is_tiny: bool, deadline: float) -> "Setting":
        """With the index of the device, as tensors on it have."""
        return cls(torch.device("cuda", 0) if device == "cuda" else torch.device(device), is_tiny, deadline)

    @property
    def is_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def trainer_options(self) -> dict[str, Any]:
        """Of a Trainer on this device."""
        return {"accelerator": "gpu" if self.is_gpu else "cpu", "devices": 1, "enable_progress_bar": False}

    @property
    def backend(self) -> str:
        """Of torch.compile: on a CPU, compiling would take longer than all else."""
        return "inductor" if self.is_gpu else "eager"

    def pick(self, full: Value, tiny: Value) -> Value:
        return tiny if self.is_tiny else full

    def synchronize(self) -> None:
        """Waits for the device."""
        if self.is_gpu:
            torch.cuda.synchronize(self.device)

    def seconds(self, work: Callable[[], Any]) -> float:
        """Wall time of some work, to its end on the device."""
        self.synchronize()
        start = time.perf_counter()
        work()
        self.synchronize()
        return time.perf_counter() - start

    def peak_mib(self, work: Callable[[], Any]) -> float | None:
        """By how much allocated device memory rises in between; None on a CPU, whose memory torch does not count."""
        if not self.is_gpu:
            work()
            return None
        torch.cuda.empty_cache()
        self.synchronize()
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        work()
        self.synchronize()
        return (torch.cuda.max_memory_allocated(self.device) - before) / 2**20

    def alternate(self, variants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
        """Values of variants that take turns, after a round that warms up; at least one round, if time allows no more.

        Args:
            variants: each returns its value, such as the seconds of a step.
            rounds: number of values of each.
        """
        for variant in variants.values():
            variant()
        values: dict[str, list[float]] = {name: [] for name in variants}
        longest_s = 0.0
        for _ in range(rounds):
            start = time.monotonic()
            if longest_s and start + 1.5 * longest_s > self.deadline:
                break
            for name, variant in variants.items():
                values[name].append(variant())
            longest_s = max(longest_s, time.monotonic() - start)
        return values


def summary(values: Sequence[float], factor: float = 1.0) -> dict[str, Any]:
    """Median, number and raw values, in another unit."""
    raw = [float(f"{factor * value:.6g}") for value in values]
    return {"median": statistics.median(raw), "n": len(raw), "values": raw}


def ratio(values: Mapping[str, Sequence[float]], name: str, reference: str) -> float:
    """The median over the rounds of one variant divided by another."""
    return statistics.median(a / b for a, b in zip(values[name], values[reference], strict=True))


def compared(
    seconds: Mapping[str, Sequence[float]], unit: str, factor: float, reference: str, prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Figures of alternating variants: the time of each, and its ratio to the reference.

    Args:
        seconds: times of each variant.
        unit: of the figures, such as µs.
        factor: from seconds to that unit.
        reference: variant whose time the others are divided by.
        prefix: before the names of figures.
    """
    for name, values in seconds.items():
        yield f"{prefix}{name}, {unit}", summary(values, factor)
    for name in seconds:
        if name != reference:
            yield f"{prefix}{name} / {reference}", ratio(seconds, name, reference)


def recipe(name: str) -> dict[str, Any]:
    """The options of a recipe of configs, such as vision/cnn-digits."""
    return yaml.safe_load((ROOT / f"configs/{name}.yaml").read_text(encoding="utf-8"))
