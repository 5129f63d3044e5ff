"""Loaders: how Lightning finds them, makes them ready and iterates over them."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.overrides.distributed import (
    UnrepeatedDistributedSampler,
    UnrepeatedDistributedSamplerWrapper,
    _IndexBatchSamplerWrapper,
)
from lightning.pytorch.trainer.states import RunningStage
from lightning.pytorch.utilities import CombinedLoader
from lightning.pytorch.utilities.data import _dataloader_init_kwargs_resolve_sampler
from lightning_utilities.core.apply_func import apply_to_collection
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler


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


def share_of_samples(trainer: Trainer, loader: DataLoader, shuffle: bool) -> Any:
    """A sampler of this process' share of the samples, none of which it repeats; another has one more or less."""
    options: dict[str, Any] = {**(trainer.distributed_sampler_kwargs or {}), "shuffle": shuffle}
    if isinstance(loader.sampler, RandomSampler | SequentialSampler):
        return UnrepeatedDistributedSampler(loader.dataset, **options)
    return UnrepeatedDistributedSamplerWrapper(loader.sampler, **{**options, "shuffle": False})


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


def replace_evaluation_loaders(trainer: Trainer, replace: Callable[[Any, Any, str], Any]) -> None:
    """Before loaders are set up: passes what the hooks for evaluation return through a function.

    Args:
        trainer: whose hooks they are.
        replace: takes what was returned, whose hook it is, and the name of the hook; returns what to use.
    """

    def load(source: Any, former: Callable[[], Any]) -> Any:
        return replace(former(), source.instance, source.name)

    loops = trainer.fit_loop.epoch_loop.val_loop, trainer.validate_loop, trainer.test_loop, trainer.predict_loop
    for loop in loops:
        source: Any = loop._data_source
        source.dataloader = partial(load, source, source.dataloader)
