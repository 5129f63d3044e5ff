"""Where in Lightning's loops a checkpoint continues exactly, and how its counters must stand there.

Lightning counts a batch as ready before its hooks run, so a checkpoint of most hooks skips or repeats something when it
is continued: a validation, a plateau step, a whole epoch. Each context manager here sets the counters back for the time
of one save. They are private to Lightning; tests/callbacks/test_resume.py sweeps over every step to guard them.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

from lightning.pytorch import Trainer


@contextmanager
def at_epoch_start(trainer: Trainer) -> Iterator[None]:
    """For a save in on_train_epoch_start: Lightning has counted the new epoch as begun, and would skip it."""
    with _back_by_one(trainer.fit_loop.epoch_progress, "ready"):
        yield


def loss_of(outputs: Any) -> Any:
    """The loss in what training_step returned: a tensor, a dict that has one, or None."""
    return outputs.get("loss") if isinstance(outputs, dict) else outputs


def gradients_are_pending(trainer: Trainer) -> bool:
    """At the start of a batch, or amid a validation: whether batches before it still wait for their optimizer step."""
    loop = trainer.fit_loop.epoch_loop
    if trainer.validating:
        return loop._should_accumulate()
    return (loop.batch_progress.current.ready - 1) % trainer.accumulate_grad_batches != 0


@contextmanager
def at_batch_start(trainer: Trainer) -> Iterator[None]:
    """For a save in on_train_batch_start: as at the end of the batch before, its validation done."""
    loop = trainer.fit_loop.epoch_loop
    with _back_by_one(loop.batch_progress, "ready"), _as_at_batch_end(loop):
        yield


def while_fetching(trainer: Trainer) -> AbstractContextManager[None] | None:
    """In on_exception: the place of a save if it was the next batch that could not be had; None anywhere else."""
    loop, epoch = trainer.fit_loop.epoch_loop, cast(Any, trainer.fit_loop.epoch_progress.current)
    batch = loop.batch_progress.current
    if epoch.started == epoch.processed or trainer.sanity_checking:
        return None
    if trainer.validating:
        return None if gradients_are_pending(trainer) else at_validation_start(trainer)
    idle = 0 < batch.ready == batch.completed and not loop._should_accumulate()
    return _as_at_batch_end(loop) if idle and not loop._num_ready_batches_reached() else None


def set_batch(trainer: Trainer, batch: int) -> None:
    """In on_train_start: has the epoch that is continued go on at this batch, counted from 0."""
    progress: Any = trainer.fit_loop.epoch_loop.batch_progress.current
    moved = batch - progress.ready
    for name in ("ready", "started", "processed", "completed"):
        setattr(progress, name, getattr(progress, name) + moved)


@contextmanager
def at_validation_start(trainer: Trainer) -> Iterator[None]:
    """For a save amid a validation: it begins anew when continued."""
    progress = trainer.fit_loop.epoch_loop.val_loop.batch_progress
    nothing: Any = {"ready": 0, "started": 0, "processed": 0, "completed": 0}
    begun = nothing | {"ready": 1, "started": 1}
    with (
        _changed(progress.current, **nothing),
        _changed(progress.total, **begun),
        _changed(progress, is_last_batch=False),
    ):
        yield


def count_validation_from_its_start(trainer: Trainer) -> None:
    """In on_validation_start: takes back the batch that at_validation_start counted as begun.

    Left in, the next checkpoint would be taken for one amid a validation, which would run again when continued.
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
