"""Where in Lightning's loops a checkpoint continues exactly, and how its counters must stand there.

Lightning counts a batch as ready before its hooks run, so a checkpoint of most hooks skips or repeats something when it
is continued: a validation, a plateau step, a whole epoch. Each context manager here sets the counters back for the time
of one save. They are private to Lightning; tests/callbacks/test_resume.py sweeps over every step to guard them.
"""

import copy
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, cast

from lightning.pytorch import Trainer
from lightning.pytorch.overrides.distributed import _IndexBatchSamplerWrapper
from lightning.pytorch.trainer.states import RunningStage
from lightning.pytorch.utilities import CombinedLoader
from lightning.pytorch.utilities.data import _dataloader_init_kwargs_resolve_sampler
from lightning_utilities.core.apply_func import apply_to_collection
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler


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


def keep_loaders(trainer: Trainer) -> None:
    """Gives a copy of a DataLoader another sampler, where Lightning would build the loader anew.

    For prediction and for several processes, Lightning calls the constructor of the loader's class again, with
    arguments that it reads off the loader. That fails for `DataLoader(dataset, 50)` and for a class with arguments of
    its own. A copy keeps the class, the collate function and every other attribute.

    Uses `_data_connector` with `_prepare_dataloader`, `_requires_distributed_sampler` and `_resolve_sampler`;
    `_dataloader_init_kwargs_resolve_sampler`, which builds a training's own batch sampler anew; and
    `_IndexBatchSamplerWrapper`, which records the indices of a prediction for a BasePredictionWriter. With
    overfit_batches also each loop's `_data_source`, before Lightning builds shuffled loaders anew.

    Args:
        trainer: whose loaders are not set up yet.
    """
    connector: Any = trainer._data_connector

    def prepare(loader: Any, shuffle: bool, mode: RunningStage) -> Any:
        is_predicting = mode == RunningStage.PREDICTING
        if not isinstance(loader, DataLoader):
            return loader
        if isinstance(loader.dataset, IterableDataset):
            if is_predicting and trainer.world_size > 1 and trainer.is_global_zero:
                _warn_of_repeats(loader.dataset, trainer.world_size)
            return loader
        is_split = connector._requires_distributed_sampler(loader)
        if not is_split and not is_predicting:
            return loader
        sampler = connector._resolve_sampler(loader, shuffle=shuffle, mode=mode)
        if loader.batch_sampler is None:  # batch_size=None: the data set returns whole batches
            return _with_samplers(loader, sampler, None)
        if type(loader.batch_sampler) is BatchSampler:
            drop_last = loader.batch_sampler.drop_last and not is_predicting
            batches: Any = BatchSampler(sampler, loader.batch_sampler.batch_size, drop_last)
        elif mode == RunningStage.TRAINING:
            batches = _dataloader_init_kwargs_resolve_sampler(loader, sampler, mode)["batch_sampler"]
        else:
            batches = _whole(loader.batch_sampler) if is_predicting else loader.batch_sampler
            share: Any = trainer.distributed_sampler_kwargs if is_split else {}
            batches = _ShareOfBatches(batches, **share)
        return _with_samplers(loader, sampler, _IndexBatchSamplerWrapper(batches) if is_predicting else batches)

    connector._prepare_dataloader = prepare
    if cast(Any, trainer).overfit_batches > 0:  # set by a connector
        for loop in (trainer.fit_loop, trainer.fit_loop.epoch_loop.val_loop):
            source: Any = loop._data_source
            source.dataloader = partial(_unshuffled, source)


class _ShareOfBatches:
    """One process' samples of the batches that a custom batch sampler yields: every num_replicas-th sample.

    Args:
        batches: an iterable of lists of indices, the same ones in every process.
        num_replicas: processes that share them.
        rank: of this process.
    """

    def __init__(self, batches: Any, num_replicas: int = 1, rank: int = 0) -> None:
        self.batches = batches
        self.num_replicas = num_replicas
        self.rank = rank

    def __iter__(self) -> Iterator[list[Any]]:
        num_samples = 0
        for batch in self.batches:
            first = (self.rank - num_samples) % self.num_replicas
            num_samples += len(batch)
            if share := list(batch)[first :: self.num_replicas]:
                yield share

    def __len__(self) -> int:
        num_batches = len(self.batches)  # a TypeError where it has no length, and may have no end
        return num_batches if self.num_replicas == 1 else sum(1 for _ in self)


def _with_samplers(loader: DataLoader, sampler: Any, batch_sampler: Any) -> DataLoader:
    """A copy of the loader; DataLoader refuses to set these attributes, though it reads them at every pass."""
    clone = copy.copy(loader)
    clone.__dict__.update(sampler=sampler, batch_sampler=batch_sampler, _iterator=None)
    return clone


def _unshuffled(source: Any) -> Any:
    """What the source's hook returns, with every DataLoader in the order of its data set."""

    def in_order(loader: DataLoader) -> DataLoader:
        if type(loader.batch_sampler) is not BatchSampler or isinstance(loader.dataset, IterableDataset):
            return loader
        sampler = SequentialSampler(cast(Any, loader.dataset))
        batches = BatchSampler(sampler, loader.batch_sampler.batch_size, loader.batch_sampler.drop_last)
        return _with_samplers(loader, sampler, batches)

    loaders = type(source).dataloader(source)
    if isinstance(loaders, CombinedLoader):
        loaders.flattened = [in_order(each) if isinstance(each, DataLoader) else each for each in loaders.flattened]
        return loaders
    return apply_to_collection(loaders, DataLoader, in_order)


def _whole(batch_sampler: Any) -> Any:
    """The same batch sampler, keeping a short last batch."""
    if getattr(batch_sampler, "drop_last", False):
        batch_sampler = copy.copy(batch_sampler)
        batch_sampler.drop_last = False
    return batch_sampler


def _warn_of_repeats(dataset: Any, num_processes: int) -> None:
    print(
        f"warning: --data: {type(dataset).__name__} is an IterableDataset, so each of the {num_processes} processes "
        "predicts every sample that it yields there; split it by rank, or use --trainer.devices 1",
        file=sys.stderr,
    )
