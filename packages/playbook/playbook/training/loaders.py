"""Makes every DataLoader that can train also validate, test and predict, in one process and in several.

For prediction and for several processes, Lightning calls the constructor of the loader's class again, with arguments
that it reads from the loader. That fails for `DataLoader(dataset, 50)` and for classes with other arguments. Here, a
copy of the loader gets a different sampler; it keeps the class, the collate function and every other attribute.
"""

import copy
import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, cast

from lightning.pytorch import Trainer
from lightning.pytorch.trainer.states import RunningStage
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from playbook.errors import UserError
from playbook.training.lightning.loaders import (
    recorded,
    replace_evaluation_loaders,
    replace_fit_loaders,
    replace_preparation,
    requires_distributed_sampler,
    resolve_sampler,
    share_of_samples,
    training_batch_sampler,
    with_samplers,
)


def keep_loaders(trainer: Trainer) -> None:
    """Gives a copy of a DataLoader another sampler, where Lightning would build the loader anew.

    A custom batch sampler is an exception: in a training by several processes, Lightning builds it anew. With
    overfit_batches, loaders are read in the order of their data set.

    Args:
        trainer: whose loaders are not set up yet.
    """
    told: set[str] = set()

    def prepare(loader: Any, shuffle: bool, mode: RunningStage) -> Any:
        is_predicting = mode == RunningStage.PREDICTING
        if not isinstance(loader, DataLoader):
            return loader
        if isinstance(loader.dataset, IterableDataset):
            if is_predicting and trainer.world_size > 1 and trainer.is_global_zero:
                _warn_of_repeats(loader.dataset, trainer.world_size)
            return loader
        is_split = requires_distributed_sampler(trainer, loader)
        if not is_split and not is_predicting:
            return loader
        if is_split and not is_predicting and mode != RunningStage.TRAINING:
            if even := even_share(trainer, loader, shuffle):
                return even
            _tell_repeats(trainer, loader, mode, told)
        sampler = resolve_sampler(trainer, loader, shuffle, mode)
        if loader.batch_sampler is None:  # batch_size=None: the data set returns whole batches
            return with_samplers(loader, sampler, None)
        if type(loader.batch_sampler) is BatchSampler:
            drop_last = loader.batch_sampler.drop_last and not is_predicting
            batches: Any = BatchSampler(sampler, loader.batch_sampler.batch_size, drop_last)
        elif mode == RunningStage.TRAINING:
            batches = training_batch_sampler(loader, sampler)
        else:
            batches = _whole(loader.batch_sampler) if is_predicting else loader.batch_sampler
            share: Any = trainer.distributed_sampler_kwargs if is_split else {}
            batches = ShareOfBatches(batches, **share)
        return with_samplers(loader, sampler, recorded(batches) if is_predicting else batches)

    replace_preparation(trainer, prepare)
    if cast(Any, trainer).overfit_batches > 0:  # set by a connector
        replace_fit_loaders(trainer, _in_order)  # before Lightning builds shuffled ones anew
    replace_evaluation_loaders(trainer, partial(_none_allowed, trainer, set()))


class EvenBatches:
    """One process' batches of an evaluation: as many as every other process has, though it has one sample less.

    A process that ran out of batches would leave the others waiting, for instance for the buffers of its model. So the
    last batches are cut where one is missing.

    Args:
        sampler: the samples of this process.
        batch_size: the most samples of a batch.
        num_batches: of every process.
    """

    def __init__(self, sampler: Any, batch_size: int, num_batches: int) -> None:
        self.sampler = sampler
        self.batch_size = batch_size
        self.num_batches = num_batches

    def __iter__(self) -> Iterator[list[Any]]:
        samples = iter(self.sampler)
        num_left = len(self.sampler)
        for num_following in reversed(range(self.num_batches)):
            size = min(self.batch_size, num_left - num_following)
            num_left -= size
            yield list(islice(samples, size))

    def __len__(self) -> int:
        return self.num_batches


def even_share(trainer: Trainer, loader: DataLoader, shuffle: bool) -> DataLoader | None:
    """The loader of an evaluation, for this process' share of the samples, each of which counts once.

    Returns:
        None if not every process can have as many batches, or if the loader makes its batches in another way.
    """
    own, world = loader.batch_sampler, trainer.world_size
    if type(own) is not BatchSampler or own.drop_last or not hasattr(loader.sampler, "__len__"):
        return None
    num_samples = len(cast(Any, loader.sampler))
    num_batches = -(-num_samples // (world * own.batch_size))
    if num_samples < world or num_samples // world < num_batches:
        return None
    sampler = share_of_samples(trainer, loader, shuffle)
    return with_samplers(loader, sampler, EvenBatches(sampler, own.batch_size, num_batches))


def _tell_repeats(trainer: Trainer, loader: DataLoader, mode: RunningStage, told: set[str]) -> None:
    """Says once per stage how many samples count twice, as Lightning repeats the first ones to fill the last batch."""
    is_custom = loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler
    if is_custom or getattr(loader.batch_sampler, "drop_last", False) or not hasattr(loader.sampler, "__len__"):
        return
    num_samples, world = len(cast(Any, loader.sampler)), trainer.world_size
    stage = "test" if mode == RunningStage.TESTING else "val"
    if num_samples % world and stage not in told and trainer.is_global_zero:
        told.add(stage)
        print(
            f"warning: --data: {-num_samples % world} of the {num_samples} {stage} samples count more than once, so "
            f"that each of the {world} processes has as many batches; --trainer.devices 1 counts each once",
            file=sys.stderr,
        )


class ShareOfBatches:
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


def _none_allowed(trainer: Trainer, told: set[str], loaders: Any, owner: Any, hook: str) -> Any:
    """Loaders for an evaluation, where None means that there is none; a training without validation says so."""
    if loaders is not None and not (isinstance(loaders, list | tuple | dict) and not loaders):
        return loaders
    if trainer.state.fn in ("validate", "predict"):
        raise no_loader(owner, hook)
    if trainer.state.fn == "fit" and hook not in told and trainer.is_global_zero:
        told.add(hook)
        print(f"no validation: {type(owner).__name__}.{hook}() returned no DataLoader", flush=True)
    return []


def no_loader(owner: Any, hook: str) -> UserError:
    """The mistake of asking for an evaluation without data."""
    return UserError(f"--data: {type(owner).__name__}.{hook}() returned no DataLoader; expected at least one")


def _in_order(loader: DataLoader) -> DataLoader:
    """The loader in the order of its data set; a custom batch sampler keeps its own."""
    if type(loader.batch_sampler) is not BatchSampler or isinstance(loader.dataset, IterableDataset):
        return loader
    sampler = SequentialSampler(cast(Any, loader.dataset))
    batches = BatchSampler(sampler, loader.batch_sampler.batch_size, loader.batch_sampler.drop_last)
    return with_samplers(loader, sampler, batches)


def _whole(batch_sampler: Any) -> Any:
    """The same batch sampler, keeping a short last batch."""
    if getattr(batch_sampler, "drop_last", False):
        batch_sampler = copy.copy(batch_sampler)
        batch_sampler.drop_last = False
    return batch_sampler


def _warn_of_repeats(dataset: Any, num_processes: int) -> None:
    print(
        f"warning: --data: {type(dataset).__name__} is an IterableDataset, so each of the {num_processes} processes "
        "predicts all samples that it yields; split it by rank, or use --trainer.devices 1",
        file=sys.stderr,
    )
