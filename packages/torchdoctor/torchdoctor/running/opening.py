"""Starts the training under review with Lightning's Trainer and stops at the first batch of an epoch."""

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from itertools import islice
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from torchdoctor.running.record import tensors
from torchdoctor.running.rehearsal import rehearse, trainer
from torchdoctor.running.shortening import shorten
from torchdoctor.running.subject import NUM_TRAIN, NUM_VAL, Subject
from torchdoctor.running.transfer import apply_transfer_hooks, batches_of
from torchdoctor.running.unchanged import log_nothing, unchanged


class _StopTraining(BaseException):
    """Ends the training once the review has finished."""


def open_subject(
    model: pl.LightningModule,
    data: pl.LightningDataModule | None,
    settings: dict[str, Any],
    look: Callable[[Subject], None],
) -> None:
    """Starts a training with Lightning's Trainer, calls `look` at its first batch and stops.

    Raises:
        Exception: whatever the program raises on its way there.
    """
    begin = _AtFirstBatch(look, settings)
    try:
        trainer(settings, callbacks=[begin]).fit(model, datamodule=data)
    except _StopTraining:
        return
    if not begin.began:
        raise ValueError("the training loader has no batch")


def look_in_second_epoch(begun: Subject, look: Callable[[Subject], None]) -> None:
    """Continues a started training and calls `look` at the first batch of its second epoch.

    Raises:
        Exception: whatever the program raises on its way there.
    """
    later = _AtFirstBatch(look, begun.settings, epoch=1)
    later.unset = begun.unset
    with suppress(_StopTraining):
        rehearse(begun, [lambda _: later])


class _AtFirstBatch(pl.Callback):
    def __init__(self, look: Callable[[Subject], None], settings: dict[str, Any], epoch: int = 0) -> None:
        self.look = look
        self.settings = settings
        self.epoch = epoch
        self.began = False
        self.unset: list[tuple[nn.Module, str]] = []

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        facts = getattr(trainer.datamodule, "facts", None)  # type: ignore[attr-defined]  # set by fit
        if isinstance(facts, dict) and isinstance(getattr(pl_module, "facts", None), dict):
            pl_module.facts = dict(facts)  # type: ignore[assignment]  # it is a dict already

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        modules = list(pl_module.modules())
        self.unset = [(module, name) for module in modules for name, value in vars(module).items() if value is None]

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if trainer.current_epoch < self.epoch:
            return
        self.began = True
        log_nothing(pl_module)
        subject = Subject(pl_module, trainer, [], [], self.settings)
        items = islice(batches_of(trainer.train_dataloader), NUM_TRAIN)
        subject.batches = [apply_transfer_hooks(trainer, _in_own_memory(item)) for item in items]
        for loader in subject.loaders("val")[:1]:
            subject.val_batches = [subject.transferred(_in_own_memory(item)) for item in islice(iter(loader), NUM_VAL)]
        subject.unset = [(module, name) for module, name in self.unset if isinstance(vars(module).get(name), Tensor)]
        _materialize_lazy_layers(subject)
        _keep_validation_attributes(subject)
        shorten(subject)
        self.look(subject)
        raise _StopTraining


def _in_own_memory(batch: Any) -> Any:
    """Copies a batch out of the shared memory of loader workers, which forked processes would overwrite."""
    is_shared = any(leaf.layout == torch.strided and leaf.is_shared() for leaf in tensors(batch))
    return deepcopy(batch) if is_shared else batch


def _materialize_lazy_layers(subject: Subject) -> None:
    """Runs a step without gradients if there are lazy layers, which take their shapes from the first input."""
    if any(map(is_lazy, subject.model.parameters())):
        with subject.not_trained(), torch.no_grad():
            subject.train(subject.batches[0])


def _keep_validation_attributes(subject: Subject) -> None:
    """Keeps the attributes that a validation epoch creates, such as a list of outputs or a bank of features."""
    model, before, new_attributes = subject.model, dict(vars(subject.model)), dict[str, Any]()
    with suppress(Exception), subject.evaluating(), unchanged(model):  # an error in a hook is the rehearsal's to tell
        model.on_validation_start()
        model.on_validation_epoch_start()
        now = vars(model).items()
        new_attributes.update(
            (name, value) for name, value in now if name not in before or _is_replaced(value, before[name])
        )
    vars(model).update(new_attributes)


def _is_replaced(value: Any, before: Any) -> bool:
    return isinstance(value, Tensor | list | dict) and value is not before
