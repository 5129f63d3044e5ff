"""Everything that Playbook takes from Lightning's inside: private names, and counters that Lightning does not publish.

The rest of Playbook and all of `src` use public names alone, and this file imports nothing of Playbook.
tests/playbook/training/test_lightning.py lists each private name with the function that uses it, and fails where a
release of Lightning lacks one.
"""

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, cast

from lightning.pytorch import Trainer
from lightning.pytorch.core.mixins.hparams_mixin import _given_hyperparameters
from lightning.pytorch.loops.optimization.automatic import Closure, ClosureResult, _AutomaticOptimization
from lightning.pytorch.overrides.distributed import _IndexBatchSamplerWrapper
from lightning.pytorch.trainer.states import RunningStage
from lightning.pytorch.utilities import CombinedLoader
from lightning.pytorch.utilities.data import _dataloader_init_kwargs_resolve_sampler
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import DataLoader

# Where a checkpoint continues exactly. Lightning counts a batch as ready before its hooks run, so a checkpoint saved in
# most hooks skips or repeats something when it is continued: a validation, a plateau step, a whole epoch. Each context
# manager here sets the counters back for the time of one save. tests/playbook/training/resume/test_exact.py sweeps over
# every step.


def position(trainer: Trainer) -> tuple[int, int]:
    """Epoch and batch, counted from 0, with which a checkpoint saved now continues."""
    loop = trainer.fit_loop
    progress: Any = loop.epoch_progress.current
    is_in_epoch = progress.started > progress.processed
    return progress.processed, loop.epoch_loop.batch_progress.current.ready if is_in_epoch else 0


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


# Gradients and losses


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
        kwargs = self._kwargs if batch is self.batch else OrderedDict(self._kwargs, batch=batch)
        try:
            return self._training_step(kwargs)
        except StopIteration as error:  # Lightning would take it for the end of the data, and go on without a word
            if "batch" not in kwargs:
                raise
            raise RuntimeError("training_step raised StopIteration") from error

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


def gradients_are_pending(trainer: Trainer) -> bool:
    """At the start of a batch or during a validation: whether earlier batches still wait for their optimizer step."""
    if trainer.validating:
        return gradients_accumulate(trainer)
    ready = trainer.fit_loop.epoch_loop.batch_progress.current.ready
    return (ready - 1) % trainer.accumulate_grad_batches != 0


def loss_of(outputs: Any) -> Any:
    """The loss in what training_step returned: a tensor, a dict that has one, or None."""
    return outputs.get("loss") if isinstance(outputs, dict) else outputs


# Restarting from a checkpoint


def end_restart(trainer: Trainer) -> None:
    """In a hook of a batch or a validation: the checkpoint is taken up, what follows is ordinary training.

    Lightning keeps the flag for the whole resumed epoch, and then steps no plateau schedule at its end. The public
    setter would leave the flag up in a training that is limited by max_steps.
    """
    trainer.fit_loop._restarting = False


def end_restart_between_epochs(trainer: Trainer) -> None:
    """In on_train_start: a checkpoint saved between two epochs continues with the second one.

    With max_steps, Lightning would enter the epoch that is over, and find no batch in it.
    """
    loop = trainer.fit_loop
    progress: Any = loop.epoch_progress.current
    if loop.restarting and progress.ready == progress.processed:
        epoch_loop = loop.epoch_loop
        for part in (loop, epoch_loop, epoch_loop.val_loop, epoch_loop.automatic_optimization):
            part._restarting = False
        epoch_loop.reset_restart_stage()


# What self.log has collected


def has_validated(trainer: Trainer) -> bool:
    """Whether a validation, other than the sanity check, ran in this training."""
    return trainer.fit_loop.epoch_loop.val_loop._has_run


def logged_names(trainer: Trainer) -> set[str]:
    """Names that self.log was called with in the running epoch, with the endings that on_step and on_epoch add."""
    names: set[str] = set()
    for metric in (trainer._results or {}).values():
        name, has_endings = metric.meta.name, metric.meta.on_step and metric.meta.on_epoch
        names |= {name, f"{name}_step", f"{name}_epoch"} if has_endings else {name}
    return names


def logged_values(trainer: Trainer) -> Any:
    """By key, the metric objects in which self.log collects the values of the training epoch."""
    return trainer.fit_loop.epoch_loop._results


def epoch_sums(trainer: Trainer) -> dict[str, dict[str, Any]]:
    """Sums over the training epoch so far of what self.log collects with on_epoch; checkpoints lack them."""
    return {
        key: {"value": metric.value, "size": getattr(metric, "cumulated_batch_size", None)}
        for key, metric in logged_values(trainer).items()
        if metric.is_tensor and metric.meta.on_epoch
    }


def add_epoch_sums(trainer: Trainer, sums: dict[str, dict[str, Any]]) -> None:
    """Adds former `epoch_sums` to those of self.log, and removes from `sums` what was added.

    Lightning creates a sum at the first call of self.log, so this is asked after every batch until all are added.
    """
    results: Mapping[str, Any] = logged_values(trainer) if sums else {}
    for key, metric in results.items():
        former = sums.pop(key, None)
        if former is None:
            continue
        value = former["value"].to(metric.value.device)
        is_extreme = metric.meta.is_max_reduction or metric.meta.is_min_reduction
        metric.value = metric.meta.reduce_fx(metric.value, value) if is_extreme else metric.value + value
        if former["size"] is not None:
            metric.cumulated_batch_size = metric.cumulated_batch_size + former["size"]


# Loaders


def training_loaders(trainer: Trainer) -> list[Any]:
    """The training loaders, in one list however they are nested."""
    combined = trainer.fit_loop._combined_loader
    return [] if combined is None else combined.flattened


def restart_fetching(trainer: Trainer) -> None:
    """In on_train_start: begins the pass over the training loaders anew, as Lightning has begun one already."""
    if trainer.fit_loop._data_fetcher is not None:
        iter(trainer.fit_loop._data_fetcher)


def replace_preparation(trainer: Trainer, prepare: Callable[[Any, bool, RunningStage], Any]) -> None:
    """Before loaders are set up: has this function make them ready.

    Args:
        trainer: whose loaders they are.
        prepare: takes a loader, whether to shuffle, and the stage; returns the loader to use.
    """
    connector: Any = trainer._data_connector
    connector._prepare_dataloader = prepare


def requires_distributed_sampler(trainer: Trainer, loader: DataLoader) -> bool:
    """Whether several processes share the samples of a loader that does not split them itself."""
    return trainer._data_connector._requires_distributed_sampler(loader)


def resolve_sampler(trainer: Trainer, loader: DataLoader, shuffle: bool, mode: RunningStage) -> Any:
    """The sampler of this process, which has its share of the samples where several processes share them."""
    return trainer._data_connector._resolve_sampler(loader, shuffle=shuffle, mode=mode)


def training_batch_sampler(loader: DataLoader, sampler: Any) -> Any:
    """A training's custom batch sampler, built anew from the arguments that Lightning reads off it."""
    return _dataloader_init_kwargs_resolve_sampler(loader, sampler, RunningStage.TRAINING)["batch_sampler"]


def recorded(batches: Any) -> Any:
    """The same batches of indices, recorded for a BasePredictionWriter."""
    return _IndexBatchSamplerWrapper(batches)


def with_samplers(loader: DataLoader, sampler: Any, batch_sampler: Any) -> DataLoader:
    """A copy of a loader; DataLoader refuses to set these attributes, though it reads them at every pass."""
    clone = copy.copy(loader)
    clone.__dict__.update(sampler=sampler, batch_sampler=batch_sampler, _iterator=None)
    return clone


def replace_fit_loaders(trainer: Trainer, replace: Callable[[DataLoader], DataLoader]) -> None:
    """Before a fit: passes every DataLoader that the hooks for training and validation return through a function."""

    def load(source: Any) -> Any:
        loaders = type(source).dataloader(source)
        if isinstance(loaders, CombinedLoader):
            loaders.flattened = [replace(each) if isinstance(each, DataLoader) else each for each in loaders.flattened]
            return loaders
        return apply_to_collection(loaders, DataLoader, replace)

    for loop in (trainer.fit_loop, trainer.fit_loop.epoch_loop.val_loop):
        source: Any = loop._data_source
        source.dataloader = partial(load, source)


# Signals, strategies, loggers, the command line


def leave_signals_alone(trainer: Trainer) -> None:
    """In setup: keeps Lightning from installing its handlers of SIGTERM and SIGUSR1."""
    connector: Any = trainer._signal_connector
    connector.register_signal_handlers = lambda: None


def finds_unused_parameters(strategy: Any) -> bool:
    """Whether a DDPStrategy lets parameters go without a gradient (`ddp_find_unused_parameters_true`)."""
    return bool(strategy._ddp_kwargs.get("find_unused_parameters"))


def set_data_parallel_size(strategy: Any, size: int) -> None:
    """Sets how many devices of a ModelParallelStrategy share a batch; before its setup_environment."""
    strategy._data_parallel_size = size


def drop_wandb_setting(logger: Any, name: str) -> None:
    """Removes an argument that a WandbLogger would pass to `wandb.init`."""
    logger._wandb_init.pop(name, None)


def is_built_by_command_line() -> bool:
    """In the constructor of a module: whether the command line builds it, from plain values."""
    return _given_hyperparameters.get() is not None


def set_hyperparameters(module: Any, values: Any) -> None:
    """Replaces the dictionary that `module.hparams` is."""
    module._hparams = values
