"""Where a checkpoint continues exactly.

Lightning counts a batch as ready before its hooks run, so a checkpoint saved in most hooks skips or repeats something
when it is continued: a validation, a plateau step, a whole epoch. Each context manager here sets the counters back for
the time of one save. tests/training/resume/test_exact.py sweeps over every step.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

from lightning.pytorch import Trainer

from playbook.training.lightning.optimization import gradients_accumulate, gradients_are_pending


def position(trainer: Trainer) -> tuple[int, int]:
    """Epoch and batch, counted from 0, with which a checkpoint saved now continues."""
    loop = trainer.fit_loop
    progress: Any = loop.epoch_progress.current
    is_in_epoch = progress.started > progress.processed
    return progress.processed, loop.epoch_loop.batch_progress.current.ready if is_in_epoch else 0


def cut_epoch(checkpoint: Mapping[str, Any]) -> tuple[int, int] | None:
    """Number of the last epoch of a checkpoint, from 1, and of its batches, if it ended before it had seen all.

    A training that ends within an epoch, by max_steps or a callback, counts the epoch as done.
    """
    loops = checkpoint.get("loops", {}).get("fit_loop")
    if loops is None:
        return None
    epoch, batches = loops["epoch_progress"]["current"], loops["epoch_loop.batch_progress"]
    is_cut = epoch["ready"] == epoch["processed"] and not batches["is_last_batch"]
    return (epoch["processed"], batches["current"]["ready"]) if is_cut and batches["current"]["ready"] else None


def epochs_done(trainer: Trainer) -> int:
    """Epochs that have ended, also in on_train_end and afterwards."""
    progress: Any = trainer.fit_loop.epoch_progress.current
    return progress.processed


def num_batches(trainer: Trainer) -> int | float:
    """Training batches of an epoch, once they are set up; infinite where nobody knows."""
    return trainer.fit_loop.max_batches


def set_epoch(trainer: Trainer, epoch: int) -> None:
    """Sets `trainer.current_epoch`, counted from 0."""
    progress: Any = trainer.fit_loop.epoch_progress.current
    progress.processed = progress.completed = epoch


def set_batch(trainer: Trainer, batch: int) -> None:
    """In on_train_start: resumes the epoch at this batch, counted from 0."""
    progress: Any = trainer.fit_loop.epoch_loop.batch_progress.current
    shift = batch - progress.ready
    for name in ("ready", "started", "processed", "completed"):
        setattr(progress, name, getattr(progress, name) + shift)


def ends_epoch(trainer: Trainer) -> bool:
    """During a training batch: whether it is the last one of its epoch."""
    return trainer.fit_loop.epoch_loop._num_ready_batches_reached()


@contextmanager
def at_epoch_start(trainer: Trainer) -> Iterator[None]:
    """For a save in on_train_epoch_start: Lightning has counted the new epoch as begun, and would skip it."""
    with _back_by_one(trainer.fit_loop.epoch_progress, "ready"):
        yield


@contextmanager
def at_batch_start(trainer: Trainer) -> Iterator[None]:
    """For a save in on_train_batch_start: as at the end of the batch before, its validation done."""
    loop = trainer.fit_loop.epoch_loop
    with _back_by_one(loop.batch_progress, "ready"), _as_at_batch_end(loop):
        yield


@contextmanager
def at_validation_start(trainer: Trainer) -> Iterator[None]:
    """For a save during a validation: the validation starts again when the run is continued."""
    progress = trainer.fit_loop.epoch_loop.val_loop.batch_progress
    nothing: Any = {"ready": 0, "started": 0, "processed": 0, "completed": 0}
    begun = nothing | {"ready": 1, "started": 1}
    with (
        _changed(progress.current, **nothing),
        _changed(progress.total, **begun),
        _changed(progress, is_last_batch=False),
    ):
        yield


def while_fetching(trainer: Trainer) -> AbstractContextManager[None] | None:
    """In on_exception: where to save if loading the next batch failed; None if anything else did."""
    loop, epoch = trainer.fit_loop.epoch_loop, cast(Any, trainer.fit_loop.epoch_progress.current)
    batch = loop.batch_progress.current
    if epoch.started == epoch.processed or trainer.sanity_checking:
        return None
    if trainer.validating:
        return None if gradients_are_pending(trainer) else at_validation_start(trainer)
    is_idle = 0 < batch.ready == batch.completed and not gradients_accumulate(trainer)
    return _as_at_batch_end(loop) if is_idle and not ends_epoch(trainer) else None


def count_validation_from_its_start(trainer: Trainer) -> None:
    """In on_validation_start: takes back the batch that at_validation_start counted as begun.

    Otherwise the next checkpoint would count as saved within a validation, which would run again on resume.
    """
    total: Any = trainer.fit_loop.epoch_loop.val_loop.batch_progress.total
    total.ready = total.started = total.processed = total.completed


@contextmanager
def _as_at_batch_end(loop: Any) -> Iterator[None]:
    """From where Lightning takes a due validation for done."""
    stepped = loop._batches_that_stepped - 1
    with (
        _back_by_one(loop.batch_progress, "completed"),
        _changed(loop.batch_progress, is_last_batch=False),
        _changed(loop, _batches_that_stepped=stepped),
    ):
        yield


@contextmanager
def _back_by_one(progress: Any, name: str) -> Iterator[None]:
    current, total = progress.current, progress.total
    with _changed(current, **{name: getattr(current, name) - 1}), _changed(total, **{name: getattr(total, name) - 1}):
        yield


@contextmanager
def _changed(owner: Any, **values: Any) -> Iterator[None]:
    former = {name: getattr(owner, name) for name in values}
    vars(owner).update(values)
    try:
        yield
    finally:
        vars(owner).update(former)
