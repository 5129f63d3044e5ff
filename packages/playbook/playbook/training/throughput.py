"""Samples a second, the share of waiting for data, and the use of the device's peak, as a training goes on."""

import time
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from playbook.batches import num_samples, split
from playbook.processes import shard_of
from playbook.training.lightning.optimization import loss_of
from playbook.training.lightning.results import logged_step
from playbook.training.nonfinite.unchanged import unchanged
from playbook.training.peaks import peak
from playbook.training.timing import Timing

EVERY_S = 5.0  # of training, between two rows
COUNTED_AT = 20  # step at which operations are counted: the import takes 3 s, which a training of fewer would feel


class Throughput(Callback):
    """Logs the speed of the last seconds of a training (always on).

    All loggers get, at a logging interval or the end of an epoch at least five seconds after the last time:

    - `speed/samples_per_second`: of all processes, without the time of validations;
    - `speed/data_wait`: share of the time in which the first process waited for its loader;
    - `speed/mfu`: model FLOPs utilization (Chowdhery et al. 2022), the floating-point operations of the training step
      over what the device's data sheet promises for the precision; on GPUs that `peaks.py` lists. A step of two samples
      is counted once, after 20 steps, with what activation checkpointing computes again.

    The values go past `self.log`, so nothing can monitor them and progress does not show them. The clock is the
    host's: reading it waits for no device. The first step, which builds and compiles, does not count.
    """

    def __init__(self) -> None:
        self._num_samples = 0
        self._begun_at: float | None = None  # of the interval; None before the end of the first step
        self._waited = 0.0  # for data, before the interval
        self._paused_at = self._paused = 0.0  # by validations
        self._num_steps = 0
        self._operations: float | None = None  # of a sample; None where they are not known

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.__init__()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._paused_at = time.perf_counter()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._paused += time.perf_counter() - self._paused_at

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._num_steps += 1
        if self._num_steps == COUNTED_AT and peak(trainer) is not None:
            self._operations = operations(trainer, pl_module, batch, batch_idx)
        if self._begun_at is None:
            self._begin(trainer)
            return
        self._num_samples += num_samples(batch)
        every = trainer.log_every_n_steps  # type: ignore[attr-defined]  # set by a connector
        if every and (logged_step(trainer) + 1) % every == 0:
            self._log(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.log_every_n_steps:  # type: ignore[attr-defined]  # set by a connector
            self._log(trainer, step=logged_step(trainer) - 1)

    def _begin(self, trainer: Trainer) -> None:
        self._begun_at = time.perf_counter()
        self._num_samples, self._paused, self._waited = 0, 0.0, _waited(trainer) or 0.0

    def _log(self, trainer: Trainer, step: int | None = None) -> None:
        if self._begun_at is None or not trainer.is_global_zero:
            return
        seconds = time.perf_counter() - self._begun_at - self._paused
        if seconds < EVERY_S:
            return
        values: dict[str, float] = {}
        if self._num_samples:
            rate = self._num_samples / seconds
            values["speed/samples_per_second"] = rate * shard_of(trainer)[1]
            if self._operations and (most := peak(trainer)):
                num_devices = trainer.world_size / shard_of(trainer)[1]  # that share a sample
                values["speed/mfu"] = rate * self._operations / (most * num_devices)
        if (waited := _waited(trainer)) is not None:
            values["speed/data_wait"] = min(1.0, (waited - self._waited) / seconds)
        for logger in trainer.loggers if values else ():
            logger.log_metrics(
                {"epoch": trainer.current_epoch, **values}, step=logged_step(trainer) if step is None else step
            )
        self._begin(trainer)


def _waited(trainer: Any) -> float | None:
    """Seconds of waiting for data so far; None with another profiler."""
    return trainer.profiler.parts().get("data", 0.0) if isinstance(trainer.profiler, Timing) else None


def operations(trainer: Trainer, module: LightningModule, batch: Any, batch_idx: int) -> float | None:
    """Floating-point operations of the training step, forward and backward, a sample; None if it cannot run alone.

    Args:
        trainer: that trains.
        module: is left as it is.
        batch: as training_step takes it; two samples of it are enough, which batch norms need.
        batch_idx: likewise.
    """
    size = num_samples(batch)
    if not module.automatic_optimization or size < 2:
        return None
    from torch.utils.flop_counter import FlopCounterMode

    share, part = split(batch, size // 2)[0]
    device = trainer.strategy.root_device
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    counter = FlopCounterMode(display=False)
    try:
        with (
            torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=_random(device)),
            unchanged(module),
            torch.compiler.set_stance("force_eager"),
            torch.enable_grad(),
            trainer.precision_plugin.train_step_context(),
            counter,
        ):
            loss = loss_of(module.training_step(*_arguments(module, part, batch_idx)))
            if isinstance(loss, Tensor) and loss.requires_grad:
                torch.autograd.grad(loss, trained, allow_unused=True)
    except (RuntimeError, TypeError, ValueError):  # a step that takes whole batches alone has no operations a sample
        return None
    return counter.get_total_flops() / (share * size) or None


def _random(device: torch.device) -> str:
    return "cuda" if device.type == "cpu" else device.type


def _arguments(module: LightningModule, batch: Any, batch_idx: int) -> list[Any]:
    from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature

    takes_index = is_param_in_hook_signature(module.training_step, "batch_idx", min_args=2)
    return [batch, batch_idx] if takes_index else [batch]
