"""A short training of a copy of the model, of which nothing remains but what a callback has measured."""

import copy
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch import callbacks as lightning_callbacks
from torch import nn

from playbook.errors import UserError
from playbook.runs.loggers import KeepsNothing
from playbook.training.microbatches import MicroBatches
from playbook.training.monitors import CheckMonitors
from playbook.training.nonfinite.callback import NonFinite
from playbook.training.record import Record
from playbook.training.timing import Timing

OBSERVERS = (  # would save, stop or report a training that is none
    lightning_callbacks.Checkpoint,
    lightning_callbacks.EarlyStopping,
    lightning_callbacks.ProgressBar,
    lightning_callbacks.Timer,
    lightning_callbacks.LearningRateMonitor,
    lightning_callbacks.DeviceStatsMonitor,
    CheckMonitors,
    Record,
)
GUARDS = (MicroBatches, NonFinite)  # would split a batch that does not fit, or end at a loss that is not finite


def train_copy(
    trainer: pl.Trainer,
    model: Any,
    datamodule: Any,
    callback: "EndsItself",
    without: tuple[type, ...] = OBSERVERS + GUARDS,
) -> None:
    """Trains a copy of the model, without validation, checkpoints and logs, until the callback ends it.

    Args:
        trainer: cannot be used for another training afterwards.
        model: is not changed.
        datamodule: its data; None if the model has its own loaders.
        callback: ends the training by `trainer.should_stop`.
        without: callbacks that stay out.
    """
    if trainer.fast_dev_run:  # type: ignore[attr-defined]  # set by a connector
        raise UserError("fast_dev_run: expected none, as more than one step is needed")
    kept_callbacks = [other for other in trainer.callbacks if not isinstance(other, without)]  # type: ignore[attr-defined]  # set by a connector
    loop = trainer.fit_loop
    limits = loop.max_epochs, loop.epoch_loop.max_steps
    trainer.callbacks = [*kept_callbacks, callback]  # type: ignore[attr-defined]  # set by a connector
    trainer.loggers = [KeepsNothing(Path(trainer.default_root_dir))]
    trainer.limit_val_batches = trainer.num_sanity_val_steps = 0
    try:
        # not our own fit, which tests the best checkpoint afterwards
        pl.Trainer.fit(trainer, copy_of(model), datamodule=datamodule)
    finally:
        if isinstance(trainer.profiler, Timing):  # type: ignore[attr-defined]  # set by a connector
            trainer.profiler.close()  # type: ignore[attr-defined]  # as above; it may be amid the steps that it watches
        trainer.callbacks = kept_callbacks  # type: ignore[attr-defined]  # set by a connector
        loop.max_epochs, loop.epoch_loop.max_steps = limits


def copy_of(model: pl.LightningModule) -> pl.LightningModule:
    """A deep copy, which shares the factories."""
    # those from the command line hold on to the parser, and by it to the data and the trainer
    factories = [value for value in vars(model).values() if callable(value) and not isinstance(value, nn.Module)]
    return copy.deepcopy(model, {id(factory): factory for factory in factories})


class EndsItself(pl.Callback):
    """Ends a training on request, whatever the recipe says, and does not step its schedules."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.fit_loop.max_epochs = trainer.fit_loop.epoch_loop.max_steps = -1
        trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None
        trainer.strategy.lr_scheduler_configs = []
