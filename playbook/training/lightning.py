"""Where in Lightning's loops a checkpoint continues exactly, and how its counters must stand there.

Lightning counts a batch as ready before its hooks run, so a checkpoint of most hooks skips or repeats something when it
is continued: a validation, a plateau step, a whole epoch. Each context manager here sets the counters back for the time
of one save. They are private to Lightning; tests/callbacks/test_resume.py sweeps over every step to guard them.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

from lightning.pytorch import Trainer
from lightning.pytorch.core.mixins.hparams_mixin import _given_hyperparameters
from lightning.pytorch.loops.optimization.automatic import Closure, ClosureResult, _AutomaticOptimization
from torch import Tensor
from torch.optim import Optimizer


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


# A batch's part in an optimizer step, and what a task and its batches are made of


class BatchClosure(Closure):
    """What an optimizer calls for one batch: forward pass, zero_grad, backward pass; subclasses put them together.

    Under gradient accumulation, Lightning itself calls the closures of all batches but the last of a step.
    """

    def __init__(
        self, loop: _AutomaticOptimization, kwargs: OrderedDict[str, Any], optimizer: Optimizer, batch_idx: int
    ) -> None:
        plain = _AutomaticOptimization._make_closure(loop, kwargs, optimizer, batch_idx)
        super().__init__(plain._step_fn, plain._backward_fn, plain._zero_grad_fn)
        self.trainer: Trainer = loop.trainer
        self.optimizer = optimizer
        self.batch_idx = batch_idx
        self._kwargs = kwargs
        self._training_step = loop._training_step

    @property
    def batch(self) -> Any:
        """The batch; None where training_step takes an iterator in its place."""
        return self._kwargs.get("batch")

    @property
    def begins_step(self) -> bool:
        """Whether the batch is the first of its optimizer step."""
        return self.batch_idx % self.trainer.accumulate_grad_batches == 0

    @property
    def has_backward(self) -> bool:
        """Whether there is a backward pass; stochastic weight averaging updates batch norms without one."""
        return self._backward_fn is not None

    def forward(self, batch: Any) -> ClosureResult:
        """Runs training_step on the whole batch or on a part of it; its loss is divided by the accumulated batches."""
        return self._training_step(self._kwargs if batch is self.batch else OrderedDict(self._kwargs, batch=batch))

    def zero_grad(self) -> None:
        """Sets the gradients to None where the batch is the first of its optimizer step."""
        if self._zero_grad_fn is not None:
            self._zero_grad_fn()

    def backward(self, loss: Tensor) -> None:
        """Adds the gradients of a loss, with all hooks of a backward pass."""
        assert self._backward_fn is not None, "see has_backward"
        self._backward_fn(loss)


class _Optimization(_AutomaticOptimization):
    def __init__(self, trainer: Trainer, closure: Callable[..., BatchClosure]) -> None:
        super().__init__(trainer)
        self.closure = closure

    def _make_closure(self, kwargs: OrderedDict[str, Any], optimizer: Optimizer, batch_idx: int) -> Closure:
        return self.closure(self, kwargs, optimizer, batch_idx)


def replace_closures(trainer: Trainer, closure: Callable[..., BatchClosure]) -> None:
    """In setup: has automatic optimization call these closures. A second fit keeps the loop, and so its counters.

    Args:
        trainer: before its fit.
        closure: takes the arguments of BatchClosure.
    """
    loop = trainer.fit_loop.epoch_loop
    if not isinstance(loop.automatic_optimization, _Optimization):
        loop.automatic_optimization = _Optimization(trainer, closure)


def gradients_accumulate(trainer: Trainer) -> bool:
    """During a training batch: whether the optimizer step of its gradients comes with a later batch."""
    return trainer.fit_loop._should_accumulate()


def training_loaders(trainer: Trainer) -> list[Any]:
    """The training loaders, in one list however they are nested."""
    combined = trainer.fit_loop._combined_loader
    return [] if combined is None else combined.flattened


def logged_values(trainer: Trainer) -> Any:
    """By key, the metric objects in which self.log collects the values of the training epoch."""
    return trainer.fit_loop.epoch_loop._results


def is_built_by_command_line() -> bool:
    """In the constructor of a module: whether the command line builds it, from plain values."""
    return _given_hyperparameters.get() is not None
