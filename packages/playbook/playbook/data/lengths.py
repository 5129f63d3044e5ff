"""Lengths of the samples of a data set, and an order with samples of similar length in a batch."""

from typing import Any

import torch
from torch import Generator, Tensor

from playbook.data.nested import read_nested


def lengths_of(dataset: Any) -> Tensor | None:
    """Reads the length of every sample without loading samples.

    Args:
        dataset: with a list `lengths`, or a Subset or ConcatDataset of such.

    Returns:
        Lengths (N,); None where the data set does not list one for every sample.
    """
    return read_nested(dataset, _listed_lengths)


def _listed_lengths(dataset: Any) -> Tensor | None:
    entries = getattr(dataset, "lengths", None)
    if entries is None:
        return None
    lengths = torch.as_tensor(entries)
    return lengths if lengths.shape == (len(dataset),) else None


def bucketed_order(order: Tensor, lengths: Tensor, batch_size: int, num_batches: int, generator: Generator) -> Tensor:
    """Sorts parts of a random order by length, and shuffles the resulting batches.

    An incomplete last batch has the samples at the end of the random order, of any length: if it had the longest or the
    shortest ones, these would always count the most.

    Args:
        order: indices of samples (N,) in random order.
        lengths: of all samples.
        batch_size: samples per batch of all processes together.
        num_batches: batches whose samples are sorted together.
        generator: of the random numbers.

    Returns:
        The same indices, batch by batch.
    """
    num_full = len(order) // batch_size
    full, rest = order[: num_full * batch_size], order[num_full * batch_size :]
    parts = full.split(num_batches * batch_size)
    by_length = [part[lengths[part].argsort(stable=True)] for part in parts]  # equal lengths stay in random order
    batches = torch.cat([*by_length, rest[:0]]).view(num_full, batch_size)
    shuffled = batches[torch.randperm(num_full, generator=generator)]
    return torch.cat([shuffled.flatten(), rest])
