"""Suggests a learning rate and a batch size, each by a short training."""

import copy
import gc
import math
import time
from functools import partial
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

from playbook.errors import UserError
from playbook.insight.short_training import EndsItself, train_copy
from playbook.insight.sweeps import Sweep, Trial
from playbook.task import Task
from playbook.training.lightning.optimization import gradients_accumulate, loss_of
from playbook.training.memory import is_out_of_memory

RECENT = 5  # losses whose mean says whether the sweep diverges
WARM_UP_STEPS = 2  # of a trial, not timed: memory is allocated, kernels are chosen


def find_lr(
    trainer: pl.Trainer,
    model: pl.LightningModule,
    datamodule: pl.LightningDataModule | None = None,
    min_lr: float = 1e-6,
    max_lr: float = 1.0,
    num_steps: int = 100,
) -> Sweep:
    """Trains a copy of the model while the rate increases exponentially from min_lr to max_lr (Smith 2017).

    Nothing is saved or loaded, and schedules are not stepped. The ratios between the rates of parameter groups are
    kept. The suggestion is the rate at which the smoothed loss falls most steeply over the logarithm of the rate,
    before its minimum. The recipe cnn-digits, where 3e-3 was chosen by hand, gets 1.3e-2, 7.6e-3 and 8.7e-3 from 100
    steps (seeds 1, 2, 3), and 1.8e-3, 1.7e-3 and 2.1e-3 from 200: a longer sweep learns more at lower rates.

    Args:
        trainer: cannot be used again; create another one for the training.
        model: is not changed.
        datamodule: the data; None if the model has its own.
        min_lr: first learning rate, above 0.
        max_lr: last learning rate, above min_lr.
        num_steps: optimizer steps, at least 10.

    Raises:
        UserError: a value is out of range, or training_step returns no loss.
    """
    if not 0 < min_lr < max_lr:
        raise UserError(f"min_lr, max_lr: expected 0 < min_lr < max_lr, got {min_lr} and {max_lr}")
    if num_steps < 10:
        raise UserError(f"num_steps: expected at least 10, got {num_steps}")
    sweeper = _Sweeper([min_lr * (max_lr / min_lr) ** (i / (num_steps - 1)) for i in range(num_steps)])
    train_copy(trainer, model, datamodule, sweeper)
    return Sweep(sweeper.rates, sweeper.losses, sweeper.diverged)


def find_batch_size(
    trainer: pl.Trainer,
    model: pl.LightningModule,
    datamodule: pl.LightningDataModule | None,
    max_batch_size: int = 4096,
    steps_per_trial: int = 10,
) -> list[Trial]:
    """Doubles the batch size from the data module's own, and trains a copy of the model for a few steps at each.

    It stops when memory is exhausted, at the size of the data set, or at max_batch_size.

    Args:
        trainer: must use one device, and cannot be used again; create another one for the training.
        model: is not changed.
        datamodule: the data, with an attribute or hyperparameter `batch_size` that its loader uses.
        max_batch_size: largest batch size to try.
        steps_per_trial: training steps at each size, at least 3; the first two are not timed.

    Raises:
        UserError: a value is out of range, there are several devices, or the data has no batch size.
    """
    if steps_per_trial <= WARM_UP_STEPS:
        raise UserError(f"steps_per_trial: expected at least {WARM_UP_STEPS + 1}, got {steps_per_trial}")
    if trainer.world_size > 1:
        raise UserError(f"devices: expected 1, as each device has its own memory, got {trainer.world_size}")
    first = getattr(datamodule, "batch_size", None) or getattr(datamodule, "hparams", {}).get("batch_size")
    if datamodule is None or not isinstance(first, int):
        raise UserError(f"data: {type(datamodule or model).__name__} has no batch_size to change")
    if first > max_batch_size:
        raise UserError(f"max_batch_size: expected at least the data's own {first}, got {max_batch_size}")
    trials: list[Trial] = []
    before = copy.deepcopy(trainer.fit_loop.state_dict())
    size = first
    try:
        while size <= max_batch_size:
            _set_batch_size(datamodule, size)
            trainer.fit_loop.load_state_dict(copy.deepcopy(before))
            timer = _Stopwatch(size, steps_per_trial)
            enough = _fits(trainer, model, datamodule, timer)
            trials.append(timer.trial() if enough else Trial(size, None, None))
            size *= 2
            if not enough or (timer.num_samples is not None and size > timer.num_samples):
                break
    finally:
        _set_batch_size(datamodule, first)
    return trials


def rate_option(model: pl.LightningModule) -> str:
    """The option that sets a model's learning rate, as far as it is known."""
    if isinstance(model, Task):
        return f"{'' if model.hparams.get('optimizer') else '--model.optimizer AdamW '}--model.optimizer.lr"
    if isinstance(model.hparams.get("optimizer"), partial):
        return "--model.optimizer.lr"
    name = next((name for name in ("lr", "learning_rate") if hasattr(model, name) or name in model.hparams), None)
    return f"--model.{name}" if name else "learning rate"


class _Sweeper(EndsItself):
    """Sets the rate of every group before each step, and keeps the loss of each."""

    def __init__(self, rates: list[float]) -> None:
        self.rates = rates
        self.losses: list[float] = []
        self.diverged = False
        self._window = 0.0  # loss of the batches accumulated so far
        self._lowest = math.inf  # mean of RECENT losses
        self._shares: list[float] = []  # of each group's own rate in the largest

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        own = [float(group.get("initial_lr", group["lr"])) for group in _groups(trainer)]
        self._shares = [rate / max(own) if max(own, default=0) > 0 else 1.0 for rate in own]

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        for group, share in zip(_groups(trainer), self._shares, strict=True):
            group["lr"] = self.rates[len(self.losses)] * share

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        loss = loss_of(outputs)
        if not isinstance(loss, Tensor):
            raise UserError("model: training_step returns no loss, so no rate can be suggested")
        self._window += float(trainer.strategy.reduce(loss.detach(), reduce_op="mean"))
        if gradients_accumulate(trainer):
            return
        self.losses.append(self._window)
        self._window = 0.0
        recent = sum(self.losses[-RECENT:]) / len(self.losses[-RECENT:])
        self._lowest = min(self._lowest, recent)
        # four times the lowest, as is usual, for losses above zero; it holds for negative ones and for those near zero
        margin = 3 * max(abs(self._lowest), abs(self.losses[0]) / 10)
        self.diverged = not recent <= self._lowest + margin  # NaN is never below
        trainer.should_stop = self.diverged or len(self.losses) == len(self.rates)


def _groups(trainer: pl.Trainer) -> list[dict[str, Any]]:
    return [group for optimizer in trainer.optimizers for group in optimizer.param_groups]


class _Stopwatch(EndsItself):
    """Times the steps of one trial."""

    def __init__(self, batch_size: int, num_steps: int) -> None:
        self.batch_size = batch_size
        self.num_steps = num_steps
        self.num_samples: int | None = None  # in the data set, if it says so
        self._device = torch.device("cpu")
        self._steps = self._timed = 0
        self._began = self._seconds = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        loader = trainer.train_dataloader
        if getattr(loader, "batch_size", self.batch_size) != self.batch_size:
            data = type(trainer.datamodule).__name__  # type: ignore[attr-defined]  # set by a connector
            raise UserError(f"data: the training loader of {data} does not use its batch_size")
        dataset = getattr(loader, "dataset", None)
        self.num_samples = len(dataset) if hasattr(dataset, "__len__") else None  # type: ignore[arg-type]  # it has __len__
        self._device = trainer.strategy.root_device
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._steps += 1
        if self._steps > WARM_UP_STEPS:
            num_left = (self.num_samples or math.inf) - batch_idx * self.batch_size
            self._timed += int(min(self.batch_size, num_left))
        if self._steps in (WARM_UP_STEPS, self.num_steps):
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            self._seconds = time.perf_counter() - self._began
            self._began = time.perf_counter()
        trainer.should_stop = self._steps == self.num_steps

    def trial(self) -> Trial:
        """What was measured."""
        on_cuda = self._device.type == "cuda"
        memory = torch.cuda.max_memory_allocated(self._device) / 2**30 if on_cuda else None
        return Trial(self.batch_size, self._timed / self._seconds, memory)


def _fits(trainer: pl.Trainer, model: Any, datamodule: Any, timer: _Stopwatch) -> bool:
    """Runs a trial; False if memory does not suffice."""
    try:
        train_copy(trainer, model, datamodule, timer)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        enough = False
    else:
        enough = True
    gc.collect()  # only here, where no traceback holds the tensors any more
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return enough


def _set_batch_size(datamodule: Any, size: int) -> None:
    if hasattr(datamodule, "batch_size"):
        datamodule.batch_size = size
    if "batch_size" in datamodule.hparams:
        datamodule.hparams.batch_size = size
