"""The order of samples: a function of (seed, epoch), over all processes, so that a run continues from a position."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, DistributedSampler, TensorDataset

from playbook.data.classes import balanced_order, targets_of
from playbook.data.lengths import bucketed_order, lengths_of
from playbook.errors import UserError
from playbook.processes import shard_of
from playbook.seeding import derived_seed, seeded


class EpochOrder(DistributedSampler):
    """The order of the samples; a DistributedSampler, as Lightning leaves those alone under DDP.

    Samples are strided over ranks, so that the ranks' batches together are the batch that one process would have.
    Evaluation adds no padding: every sample counts once. In training every rank needs a sample in every batch, so a
    last batch with fewer samples than ranks is left out; these are other samples every epoch. A training pass yields
    (epoch, index, draw), an evaluation pass the index. The number `draw` seeds what is random about the sample, and
    comes once an epoch: the index, or the place in the order where samples are repeated. Data with an own `draw` says
    which samples an epoch has, and the numbers.
    """

    def __init__(self, data: Any, dataset: Any, shuffle: bool) -> None:
        rank, world = shard_of(data.trainer)
        super().__init__(dataset, num_replicas=world, rank=rank, shuffle=shuffle, seed=data.seed)
        self.data = data
        is_prediction = getattr(data.trainer, "predicting", False)
        done = data.predicted if is_prediction and not shuffle else ()
        self.indices = [i for i in range(len(dataset)) if i not in done] if done else range(len(dataset))
        self.is_rest = bool(done)  # of a prediction that goes on
        self.draws_itself = shuffle and data.samples_per_epoch is not None
        # samples of all ranks
        self.size = (data.samples_per_epoch or 0) if self.draws_itself else len(self.indices)
        self.targets = _required_targets(data) if shuffle and data.balanced else None
        self.lengths = _required_lengths(data) if shuffle and data.bucket else None

    def __len__(self) -> int:
        return len(range(self.rank, self.num_used(), self.num_replicas))

    def __iter__(self) -> Iterator[Any]:
        if not self.shuffle:
            return iter(self.indices[self.rank : self.num_used() : self.num_replicas])
        epoch, rest = self.rest()
        return ((epoch, index, draw) for index, draw in rest.tolist())

    def rest(self) -> tuple[int, Tensor]:
        """The epoch, and index and draw of those of its samples that this process has not trained on, (N, 2)."""
        # asked here, not by set_epoch: Lightning calls that after iter(), too late for workers that fetch ahead
        epoch, batch = self.data._position()
        own = self.draws(epoch)[self.rank :: self.num_replicas]
        return epoch, own[batch * self.data.batch_size :]

    def draws(self, epoch: int) -> Tensor:
        """Index and draw of an epoch's samples, of all ranks together, (N, 2)."""
        generator = torch.Generator().manual_seed(derived_seed(self.seed, epoch))
        if self.draws_itself:
            draws = self.data.draw(epoch)[torch.randperm(self.size, generator=generator)]
            return self._bucketed(draws[: self.num_used()], generator)
        if self.targets is not None:
            order = balanced_order(self.targets, generator)
        else:
            order = torch.randperm(self.size, generator=generator)
        order = self._bucketed(order[: self.num_used(), None], generator)[:, 0]
        return torch.stack([order, order if self.targets is None else torch.arange(len(order))], dim=1)

    def _bucketed(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        if self.lengths is None:
            return rows
        size = self.data.batch_size * self.num_replicas  # ranks take turns, so all have samples of similar lengths
        places = torch.arange(len(rows))
        return rows[bucketed_order(places, self.lengths[rows[:, 0]], size, self.data.bucket, generator)]

    def order(self, epoch: int) -> Tensor:
        """Indices of an epoch's samples, of all ranks together."""
        return self.draws(epoch)[:, 0]

    def samples_of_batch(self, epoch: int, batch: int) -> list[int]:
        """Indices of the samples in a training batch of this process, both counted from 0."""
        own = self.order(epoch)[self.rank :: self.num_replicas]
        return own[batch * self.data.batch_size : (batch + 1) * self.data.batch_size].tolist()

    def num_used(self) -> int:
        num_left = self._left(self.data.batch_size)
        return self.size - num_left if self.shuffle and 0 < num_left < self.num_replicas else self.size

    def batch_size(self) -> int:
        """In evaluation, the largest at which every rank has as many batches: a sharded net waits for all in each."""
        if self.shuffle:
            return self.data.batch_size
        sizes = range(self.data.batch_size, 0, -1)
        return next((size for size in sizes if not 0 < self._left(size) < self.num_replicas), self.data.batch_size)

    def _left(self, batch_size: int) -> int:
        """Samples of all ranks in the last batch, if it is not full."""
        return self.size % (batch_size * self.num_replicas)


def _required_targets(data: Any) -> Tensor:
    targets = targets_of(data.train_set)
    if targets is None:
        raise UserError(
            f"--data.balanced: the training set of {type(data).__name__} does not list the class of each sample; "
            "expected an attribute `targets` with N class numbers, or --data.balanced false"
        )
    return targets


def _required_lengths(data: Any) -> Tensor:
    lengths = lengths_of(data.train_set)
    if lengths is None:
        raise UserError(
            f"--data.bucket {data.bucket}: the training set of {type(data).__name__} does not list the length of each "
            "sample; expected an attribute `lengths` with N numbers, or --data.bucket 0"
        )
    return lengths


class SeededSamples(Dataset):
    """A training set whose augmentation is a function of (seed, epoch, draw), see `EpochOrder`.

    Args:
        dataset: the samples.
        seed: of the training.
        augment: changes a sample; None for none.
        augment_batch: changes a batch of a TensorDataset at once, in place of `augment`: takes its tensors (B, …) and
            uniform random numbers in [0, 1), (B, num_draws).
        num_draws: random numbers of a sample for `augment_batch`.
    """

    def __init__(
        self, dataset: Any, seed: int, augment: Any = None, augment_batch: Any = None, num_draws: int = 2
    ) -> None:
        self.dataset, self.seed, self.augment = dataset, seed, augment
        self.augment_batch, self.num_draws = augment_batch, num_draws
        self._draws: tuple[int, Tensor] = (-1, torch.empty(0))  # an epoch, and the random numbers of all its samples

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key: tuple[int, int, int] | int) -> Any:
        # overfit_batches brings a sampler of plain indices
        epoch, index, draw = key if isinstance(key, tuple) else (0, key, key)
        if self.augment_batch is not None:
            return tuple(tensor[0] for tensor in self.take(epoch, torch.tensor([[index, draw]])))
        if self.augment is None:
            return self.dataset[index]
        with seeded(self.seed, epoch, draw):
            return self.augment(self.dataset[index])

    def takes_batches(self) -> bool:
        """Whether `take` may replace single samples."""
        return type(self.dataset) is TensorDataset and self.augment is None

    def take(self, epoch: int, rows: Tensor) -> list[Tensor]:
        """The tensors of a batch, augmented.

        Args:
            epoch: counted from 0.
            rows: index and draw of each sample, (B, 2).
        """
        tensors = [tensor[rows[:, 0]] for tensor in self.dataset.tensors]
        if self.augment_batch is None:
            return tensors
        if epoch != self._draws[0]:
            generator = torch.Generator().manual_seed(derived_seed(self.seed, epoch, len(self)))
            self._draws = epoch, torch.rand(len(self), self.num_draws, generator=generator)
        return list(self.augment_batch(tensors, self._draws[1][rows[:, 1]]))
