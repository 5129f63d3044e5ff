"""Runs a short real training while callbacks observe it."""

import math
import tempfile
from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from unittest import mock

import lightning.pytorch as pl
from lightning.fabric.utilities.data import sized_len

from torchdoctor.running.logger import AcceptingLogger
from torchdoctor.running.subject import NUM_TRAIN, NUM_VAL, Subject
from torchdoctor.running.unchanged import log_nothing

_FEW, _STEPS, _MANY_VAL = 3, 6, 50  # training batches where steps are slow, steps at least, validation batches at most
_MANY_STEPS = 50  # which no rehearsal takes
_MAX_EPOCHS = 1000  # of a training for which the user chose none


class Watch(pl.Callback):
    """A callback that observes a rehearsal.

    Args:
        subject: before it begins.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject


Notes = TypeVar("Notes", bound=Watch)


def trainer(settings: dict[str, Any], **more: Any) -> pl.Trainer:
    """Lightning's Trainer on the CPU with the user's settings, without output."""
    quiet = {
        "logger": AcceptingLogger(settings.get("default_root_dir") or tempfile.gettempdir()),
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    fixed = {"accelerator": "cpu", "devices": 1, "num_sanity_val_steps": 0, "barebones": False}
    return pl.Trainer(**{"max_epochs": _MAX_EPOCHS, **settings, **quiet, **fixed, **more})


def rehearsal_notes(subject: Subject, kind: type[Notes]) -> Notes:
    """The watch of this kind after a rehearsal, which is run if none has had such a watch.

    Raises:
        Exception: whatever the program raises.
    """
    if kind not in subject.watches:
        rehearse(subject, [kind])
    return subject.watches[kind]


def rehearse(subject: Subject, kinds: Iterable[Callable[[Subject], pl.Callback]]) -> None:
    """Trains two short epochs with Lightning's Trainer; the model stays trained.

    An error may come from what is left out: the end of a validation may need all its batches, and gets them then.

    Args:
        subject: whose training it is.
        kinds: make callbacks that take notes.

    Raises:
        Exception: whatever the program raises.
    """
    kinds = list(kinds)
    for number in (NUM_VAL, _MANY_VAL):
        subject.forget_steps()
        watches = {kind: kind(subject) for kind in kinds}
        try:
            _train(subject, list(watches.values()), number)
            break
        except Exception:
            if number == _MANY_VAL or not _validates_longer(subject):
                raise
    subject.watches |= watches


def _validates_longer(subject: Subject) -> bool:
    """Whether a rehearsal leaves out validation batches, and a longer one would not."""
    return NUM_VAL < max((sized_len(each) or 0 for each in subject.loaders("val")), default=0) <= _MANY_VAL


def _train(subject: Subject, watches: list[pl.Callback], num_val: int) -> None:
    """Runs a training of a few steps in place of the subject's own."""
    for name in ("log", "log_dict"):
        if callable(vars(subject.model).get(name)):  # not what the user has there
            delattr(subject.model, name)
    if subject.limits:
        move = subject.model._apply_batch_transfer_handler
        setattr(subject.model, move.__name__, lambda batch, **where: subject.shortened(move(batch, **where)))
    for owner in filter(None, (subject.model, subject.data)):
        owner.setup = owner.prepare_data = lambda *_, **__: None  # done already, and perhaps only once
    most = subject.settings.get("max_steps") or -1
    limits = {
        "max_steps": most if most > _MANY_STEPS else -1,  # of the schedules that end with the training
        "limit_train_batches": _FEW if subject.is_slow else NUM_TRAIN,
        "limit_val_batches": num_val,
    }
    num_epochs = max(2, math.ceil(_STEPS / subject.trainer.num_training_batches))
    limits["max_epochs"] = max(num_epochs, subject.settings.get("max_epochs") or _MAX_EPOCHS)
    short = trainer(subject.settings | limits, callbacks=[*watches, _StopAfterEpochs(num_epochs)], log_every_n_steps=1)
    with mock.patch.object(pl.Trainer, "estimated_stepping_batches", subject.trainer.estimated_stepping_batches):
        short.fit(subject.model, datamodule=subject.data)
    log_nothing(subject.model)


class _StopAfterEpochs(pl.Callback):
    """Stops after so many epochs without setting `max_epochs`, from which schedules derive their warm-up."""

    def __init__(self, num_epochs: int) -> None:
        self.num_epochs = num_epochs

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.should_stop |= trainer.current_epoch + 1 >= self.num_epochs
