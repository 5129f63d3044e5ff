"""Ctrl-C, SIGTERM and SIGUSR1 end the training at the next step, with a checkpoint (always on)."""

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from playbook.errors import Stopped
from playbook.processes import end_others, is_first_process
from playbook.training.lightning.settings import leave_signals_alone
from playbook.training.resume.checkpoint import Checkpoint

# what schedulers send before they take a machine away; SIGUSR1 as in `sbatch --signal=USR1@90`
PREEMPTION = (signal.SIGTERM, signal.SIGUSR1) if hasattr(signal, "SIGUSR1") else (signal.SIGTERM,)
ECHO_S = 1.0  # torchrun passes on what the whole process group has got already


class StopOnSignal(Callback):
    """Asks the checkpoint callback to save and stop; a second signal stops immediately (always on).

    On SIGTERM, Lightning itself ends the step, saves no checkpoint and exits with 0. Before and after the training
    there is nothing to save, so a signal stops immediately. With several processes, any of them may get the signal.

    Args:
        checkpoint: callback that saves and stops.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self._came_at: float | None = None  # in this process; others may have had a signal before

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        # Lightning's own handler waits for the other processes inside of itself, and hangs where they do not come
        leave_signals_alone(trainer)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for number in (signal.SIGINT, *PREEMPTION):
            _install(number, self._on_signal)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        _install(signal.SIGINT, signal.default_int_handler)
        stop_at_once_on_sigterm()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if not isinstance(exception, Stopped):
            self.on_train_end(trainer, pl_module)
            return
        if self.checkpoint.stopping is None:  # the other processes do not know of it
            end_others(trainer)
        for number in PREEMPTION:  # what is to be saved has been; schedulers go on sending
            _install(number, signal.SIG_IGN)

    def _on_signal(self, number: int, frame: Any) -> None:
        if self._came_at is None:
            self._came_at = time.monotonic()
            self.checkpoint.stop_signal = number
            if is_first_process():
                os.write(2, b"\nstopping with a checkpoint at the end of this step; again to stop at once\n")
        elif time.monotonic() - self._came_at > ECHO_S:
            raise KeyboardInterrupt


def stop_at_once_on_sigterm() -> None:
    """Makes SIGTERM and SIGUSR1 raise an exception, as Ctrl-C does, instead of ending the process silently."""
    for number in PREEMPTION:
        _install(number, _stop)


def requeue(number: int) -> None:
    """Asks SLURM to start the job again, where it warned with SIGUSR1 that the time is up."""
    job, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    job = f"{job}_{task}" if job else os.environ.get("SLURM_JOB_ID")
    if job is None or number != getattr(signal, "SIGUSR1", None) or os.environ.get("SLURM_PROCID", "0") != "0":
        return
    try:
        subprocess.run(["scontrol", "requeue", job], check=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"warning: scontrol requeue {job}: {error}; restart the job manually", file=sys.stderr)
    else:
        print(f"requeued  SLURM job {job}", flush=True)


def _stop(number: int, frame: Any) -> None:
    signal.signal(number, signal.SIG_IGN)  # once is enough
    raise Stopped(number)


def _install(number: int, handler: Any) -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(number, handler)
