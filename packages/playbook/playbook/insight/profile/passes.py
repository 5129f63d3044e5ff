"""The passes of a profile, in one short training: timed steps, traced steps, recorded steps."""

import gzip
import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from playbook.insight.profile.operators import add_device_times, keep_fastest
from playbook.insight.profile.places import ModuleStack
from playbook.insight.profile.recorder import BACKWARD, OPTIMIZER, Recorder
from playbook.insight.profile.steps import StepTimer, synchronize

TRACED = 3  # steps in the trace that Perfetto opens
RECORDED = 3  # steps that are recorded; of each operation, the fastest counts


class Passes(StepTimer):
    """Times steps as they are, then traces a few, then records a few.

    Args:
        num_steps: to time.

    Attributes:
        traced: the traced steps, for `write_trace`; None before them.
        recorder: what the last recorded step did; None before it.
    """

    def __init__(self, num_steps: int) -> None:
        super().__init__(num_steps)
        self.traced: profile | None = None
        self.recorder: Recorder | None = None
        self._former: Recorder | None = None
        self._contexts = ExitStack()
        self._tracer: Any = None
        self._num_traced = self._num_recorded = 0
        self._is_recording = False

    def finished(self, trainer: Any) -> None:
        """Timing is done: tracing begins, so that the loading of the next batch is seen."""
        self.traced = self._contexts.enter_context(profile(activities=_activities(self._device)))
        self._contexts.enter_context(ModuleStack(trainer.lightning_module, ranges=True))

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self._num_traced < TRACED or self._is_recording or batch_idx % trainer.accumulate_grad_batches:
            return  # from the first batch of a step on
        self._former = self.recorder
        self._tracer = None
        if self._device.type == "cuda":
            self._tracer = self._contexts.enter_context(profile(activities=_activities(self._device)))
        self.recorder = self._contexts.enter_context(Recorder(pl_module, trainer.optimizers, batch, self._device))
        self._is_recording = True

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        if self._is_recording and self.recorder is not None:
            self.recorder.begin(BACKWARD)

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        if self._is_recording and self.recorder is not None:
            self.recorder.begin(OPTIMIZER)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.result is None:
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
            return
        if self._num_traced < TRACED:
            self._num_traced += 1
            if self._num_traced == TRACED:
                synchronize(self._device)
                self._contexts.close()
        elif self._is_recording and (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            synchronize(self._device)
            self._is_recording = False
            self._contexts.close()
            assert self.recorder is not None
            if self._tracer is not None:
                events = json.loads(exported(self._tracer))["traceEvents"]
                add_device_times(self.recorder.operations, events)
            if self._former is not None:
                keep_fastest(self.recorder.operations, self._former.operations)
            self._num_recorded += 1
            trainer.should_stop = self._num_recorded == RECORDED

    def close(self) -> None:
        """Ends what an error has left open."""
        self._contexts.close()


def write_trace(tracer: Any, path: Path) -> None:
    """Writes what was traced, compressed as Perfetto reads it."""
    path.write_bytes(gzip.compress(exported(tracer), compresslevel=6))


def exported(tracer: Any) -> bytes:
    """What was traced, as the JSON of a Chrome trace."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        tracer.export_chrome_trace(str(path))
        return path.read_bytes()


def _activities(device: torch.device) -> list[ProfilerActivity]:
    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
