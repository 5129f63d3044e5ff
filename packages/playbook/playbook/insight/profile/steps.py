"""How long a step takes and how much memory it needs, over a few dozen steps of a training."""

import math
import statistics
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from playbook.batches import num_samples
from playbook.insight.short_training import EndsItself
from playbook.training.lightning.optimization import loss_of
from playbook.training.speed import evidence_of
from playbook.training.timing import Timing
from playbook.training.verdict import verdict

WARM_UP = 5  # steps in which memory is allocated and kernels are chosen or compiled
NUM_LOSSES = 10  # of the first steps, by which two trainings are compared
LEAST_STEPS = 5  # that are timed, however slow they are
LEAST_SECONDS, MOST_SECONDS = 3.0, 20.0  # of the timed steps; within them, as many as asked for
ONCE = 10  # a step that takes this many times the median may be one that compiles, if there are at most MOST_ONCE
MOST_ONCE = 2


@dataclass(frozen=True)
class Steps:
    """What the steps of a short training took.

    Args:
        step_ms: mean duration of a step with its loading, without what happens once.
        median_ms: of these durations.
        samples_per_second: None where the size of a batch is unknown.
        start_s: seconds before the first timed step, and what later steps took once, such as compiling.
        memory_mib: most memory while training, on the device, or beyond what the process had before; None if unknown.
        losses: of the first steps.
        planned: training batches of the whole training; None if it has no limit.
        bound_by: what bounds the training.
        advice: what to try first.
        shares: of each part in the time.
    """

    step_ms: float
    median_ms: float
    samples_per_second: float | None
    start_s: float
    memory_mib: float | None
    losses: list[float] = field(default_factory=list)
    planned: int | None = None
    bound_by: str = ""
    advice: str = ""
    shares: dict[str, float] = field(default_factory=dict)

    @property
    def training_s(self) -> float | None:
        """Seconds of all training steps; None if the training has no limit."""
        return None if self.planned is None else self.start_s + self.planned * self.step_ms / 1e3


class StepTimer(EndsItself):
    """Times the steps of a training after a few that do not count.

    Args:
        num_steps: to time, more if they take less than LEAST_SECONDS, fewer if more than MOST_SECONDS.
    """

    def __init__(self, num_steps: int) -> None:
        self.num_steps = num_steps
        self.result: Steps | None = None
        self._device = torch.device("cpu")
        self._planned: int | None = None
        self._ends: list[float] = []  # of each step
        self._num_samples: list[int | None] = []
        self._losses: list[Any] = []
        self._began = 0.0
        self._base_mib: float | None = None  # of the process, before the first step

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        batches = trainer.estimated_stepping_batches * trainer.accumulate_grad_batches
        self._planned = int(batches) if math.isfinite(batches) and batches > 0 else None
        super().on_train_start(trainer, pl_module)
        self._device = trainer.strategy.root_device
        self._began = time.perf_counter()
        self._base_mib = reset_peak(self._device)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.result is not None:
            return
        loss = loss_of(outputs)
        if len(self._losses) < NUM_LOSSES:
            self._losses.append(loss.detach() if isinstance(loss, Tensor) else loss)
        if len(self._ends) + 1 in (WARM_UP, WARM_UP + self.num_steps):
            synchronize(self._device)
        self._ends.append(time.perf_counter())
        self._num_samples.append(num_samples(batch) or None)
        timed = len(self._ends) - WARM_UP
        seconds = self._ends[-1] - self._ends[min(WARM_UP, len(self._ends)) - 1]
        if (timed >= self.num_steps and seconds >= LEAST_SECONDS) or (timed >= LEAST_STEPS and seconds >= MOST_SECONDS):
            synchronize(self._device)
            self._ends[-1] = time.perf_counter()
            self.result = self._measured(trainer)
            self.finished(trainer)

    def finished(self, trainer: Any) -> None:
        """Follows the last timed step; ends the training."""
        trainer.should_stop = True

    def _measured(self, trainer: Any) -> Steps:
        ends = self._ends[WARM_UP - 1 :]
        durations = [after - before for before, after in pairwise(ends)]
        median = statistics.median(durations)
        once = [duration for duration in durations if duration > ONCE * median]
        once = once if len(once) <= MOST_ONCE else []
        excess = sum(duration - median for duration in once)
        start = ends[0] - self._began + excess
        total = sum(durations) - excess
        samples = self._num_samples[WARM_UP:]
        sizes = [size for size in samples if size is not None]
        return Steps(
            step_ms=1e3 * total / len(durations),
            median_ms=1e3 * median,
            samples_per_second=sum(sizes) / total if len(sizes) == len(samples) else None,
            start_s=max(0.0, start - WARM_UP * total / len(durations)),
            memory_mib=peak_mib(self._device, self._base_mib),
            losses=[float(loss) for loss in self._losses if loss is not None],
            planned=self._planned,
            **_judged(trainer),
        )


def _judged(trainer: Any) -> dict[str, Any]:
    timing = trainer.profiler
    assert isinstance(timing, Timing), timing  # the verb sets no other
    parts = timing.parts()
    bound, advice = verdict(evidence_of(trainer, timing, parts))
    total = sum(parts.values())
    return {
        "bound_by": bound,
        "advice": advice,
        "shares": {name: round(part / total, 4) for name, part in parts.items()},
    }


def synchronize(device: torch.device) -> None:
    """Waits until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def reset_peak(device: torch.device) -> float | None:
    """Begins to measure the peak of the memory anew; returns what the process has now, in MiB, if that is known."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with suppress(OSError):  # Linux alone
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _status("VmRSS")


def peak_mib(device: torch.device, base_mib: float | None) -> float | None:
    """The most memory since `reset_peak`: allocated on the device, or of the process beyond `base_mib`."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = _status("VmHWM")
    return None if peak is None or base_mib is None else max(0.0, peak - base_mib)


def _status(name: str) -> float | None:
    """A line of this process' status in MiB; None where there is none."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:")), None)
