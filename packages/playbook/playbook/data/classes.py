"""Classes of the samples of a data set, and an order with equally many samples of every class."""

from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor
from torch.utils.data import TensorDataset

from playbook.data.nested import read_nested


def targets_of(dataset: Any) -> Tensor | None:
    """Reads the class number of every sample without loading samples.

    Args:
        dataset: with a list `targets` or `labels` as in torchvision; a TensorDataset whose last tensor holds them; or
            a Subset or ConcatDataset of such.

    Returns:
        Class numbers (N,); None where the data set does not list one for every sample.
    """
    return read_nested(dataset, _listed_targets)


def _listed_targets(dataset: Any) -> Tensor | None:
    if getattr(dataset, "target_transform", None) is not None:  # of torchvision: batches hold other targets
        return None
    if isinstance(dataset, TensorDataset):
        return _as_classes(dataset.tensors[-1], len(dataset))
    listed = [getattr(dataset, name, None) for name in ("targets", "labels")]
    return next((_as_classes(entries, len(dataset)) for entries in listed if entries is not None), None)


def _as_classes(entries: Any, size: int) -> Tensor | None:
    try:
        numbers = np.asarray(entries.cpu() if isinstance(entries, Tensor) else entries)
    except (TypeError, ValueError):  # entries of different lengths
        return None
    if numbers.shape != (size,) or numbers.dtype.kind not in "iu" or (size and numbers.min() < 0):
        return None
    return torch.from_numpy(numbers.astype(np.int64))


def count_classes(targets: Tensor, num_classes: int) -> list[int]:
    """Counts the samples of the classes 0 to `num_classes` - 1, and of further ones if there are any."""
    return targets.bincount(minlength=num_classes).tolist()


def balanced_order(targets: Tensor, generator: Generator) -> Tensor:
    """Draws N samples, equally many of every class that occurs, in random order.

    Samples of a small class are repeated only after all of them were drawn. The numbers of samples of two classes
    differ by 1 at most.

    Args:
        targets: class numbers (N,), of at least one sample.
        generator: generator of the random numbers.

    Returns:
        Indices (N,) of samples.
    """
    total = len(targets)
    counts = targets.bincount()
    sizes = counts[counts > 0]  # (K,), of the classes that occur
    quotas = torch.full_like(sizes, total // len(sizes))
    quotas[torch.randperm(len(sizes), generator=generator)[: total % len(sizes)]] += 1
    shuffled = torch.randperm(total, generator=generator)
    by_class = shuffled[targets[shuffled].argsort(stable=True)]  # (N,), class by class, in random order within each
    first, first_drawn = (numbers.cumsum(0) - numbers for numbers in (sizes, quotas))  # (K,)
    number = torch.arange(total) - first_drawn.repeat_interleave(quotas)  # (N,), of the draw in its class
    drawn = by_class[first.repeat_interleave(quotas) + number % sizes.repeat_interleave(quotas)]
    return drawn[torch.randperm(total, generator=generator)]
