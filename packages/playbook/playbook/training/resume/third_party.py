"""Adapts third-party DataLoaders, so that a resumed run gets its batches in the same order."""

import os
from collections.abc import Iterator
from itertools import count, islice
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler, TensorDataset
from torch.utils.data.dataloader import default_collate

from playbook.processes import shard_of
from playbook.seeding import derived_seed, seed_generators
from playbook.training.lightning.loaders import restart_fetching, training_loaders

FETCH = -3  # stands for the batch in the seed of what an epoch draws before its first batch


def make_replayable(trainer: Trainer, batch: int) -> None:
    """Makes the training loaders' order and randomness a function of (seed, epoch, batch), and skips to a batch.

    A DataLoader keeps its class, data set, sampler and workers; each pass over it is seeded by its epoch. Batches
    before the checkpoint are skipped: without workers by their indices alone, else by loading them again, as the
    workers' generators must advance too. A loader that saves its own position is left alone.

    Args:
        trainer: with its loaders set up.
        batch: number of batches of this epoch that were trained on before; a one-line message says what cannot be
            continued exactly.
    """
    loaders = training_loaders(trainer)
    obstacles = [text for loader in loaders if (text := _obstacle(trainer, loader))]
    if batch and obstacles:
        print(f"resuming within an epoch, but not exactly: {'; '.join(dict.fromkeys(obstacles))}", flush=True)
    plain = [loader for loader in loaders if isinstance(loader, DataLoader) and not hasattr(loader, "load_state_dict")]
    for loader in plain:
        if not isinstance(loader, _Replayable):  # of a former fit
            loader.__class__ = type(type(loader).__name__, (_Replayable, type(loader)), {})
        loader.__dict__["_replay"] = (trainer, {trainer.current_epoch: batch})
    if plain:
        restart_fetching(trainer)


def _obstacle(trainer: Trainer, loader: Any) -> str | None:
    if hasattr(loader, "load_state_dict"):
        return None
    if not isinstance(loader, DataLoader):
        return f"a {type(loader).__name__} cannot start at a given batch, so it repeats the first batches of the epoch"
    if isinstance(loader.dataset, IterableDataset):
        return f"{type(loader.dataset).__name__} has its own order; the batches done so far are read again and skipped"
    if loader.persistent_workers and trainer.current_epoch:
        return "persistent workers draw different random numbers; use persistent_workers=False in --data to avoid it"
    return None


class _Replayable(DataLoader):
    def __iter__(self) -> Iterator[Any]:
        trainer, batches_done = self.__dict__["_replay"]
        done = batches_done.pop(trainer.current_epoch, 0)
        seed = int(os.environ["PL_GLOBAL_SEED"])
        rank, epoch = shard_of(trainer)[0], trainer.current_epoch
        # for samplers that draw from the global generators; all ranks alike, as they may share one order
        seed_generators(derived_seed(seed, epoch, FETCH))
        owners: list[Any] = [(self, (seed, rank, epoch)), (self.sampler, (seed, epoch))]
        for owner, key in owners:
            if hasattr(owner, "generator"):
                owner.generator = torch.Generator().manual_seed(derived_seed(*key))
        if _is_cut_at_once(self):
            yield from islice(_cut_batches(self), done, None)
            return
        iterator: Any = super().__iter__()
        in_process = self.num_workers == 0  # where the data set and the sampler draw from this process' generators
        indices_alone = in_process and not isinstance(self.dataset, IterableDataset)
        for batch in count():
            if in_process:
                seed_generators(derived_seed(seed, rank, epoch, batch, FETCH))
            try:
                # private to torch: what the iterator takes indices from; its public name would build a second sampler
                item = next(iterator._sampler_iter if indices_alone and batch < done else iterator)
            except StopIteration:
                return
            if batch >= done:
                yield item


def _is_cut_at_once(loader: DataLoader) -> bool:
    """Whether batches are rows of dense tensors in an order of torch's, so that indexing gives them all at once."""
    return (
        type(loader.dataset) is TensorDataset
        and all(tensor.layout == torch.strided for tensor in loader.dataset.tensors)
        and loader.collate_fn is default_collate
        and type(loader.batch_sampler) is BatchSampler
        and type(loader.sampler) in (RandomSampler, SequentialSampler)
        and loader.num_workers == 0
        and not loader.pin_memory
    )


def _cut_batches(loader: Any) -> Iterator[list[torch.Tensor]]:
    """What the loader gives, which takes a tenth of the time of single samples that are collated."""
    for indices in loader.batch_sampler:
        rows = torch.tensor(indices)
        yield [tensor[rows] for tensor in loader.dataset.tensors]
