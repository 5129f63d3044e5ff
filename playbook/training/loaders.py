"""Makes every DataLoader that can train also validate, test and predict, in one process and in several.

For prediction and for several processes, Lightning calls the constructor of the loader's class again, with arguments
that it reads from the loader. That fails for `DataLoader(dataset, 50)` and for classes with other arguments. Here, a
copy of the loader gets a different sampler; it keeps the class, the collate function and every other attribute.
"""

import copy
import sys
from collections.abc import Iterator
from typing import Any, cast

from lightning.pytorch import Trainer
from lightning.pytorch.trainer.states import RunningStage
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from playbook.training.lightning import (
    recorded,
    replace_fit_loaders,
    replace_preparation,
    requires_distributed_sampler,
    resolve_sampler,
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
