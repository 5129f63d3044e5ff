"""What a data set lists of its samples, also through subsets and concatenations of it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset


def read_nested(dataset: Any, read: Callable[[Any], Tensor | None]) -> Tensor | None:
    """Reads a value of every sample of a data set, or of the data sets that a Subset or ConcatDataset is made of.

    Args:
        dataset: with a length N.
        read: returns the values of a data set that is neither, (N, …); None where it lists none.

    Returns:
        Values (N, …); None where a part lists none.
    """
    if isinstance(dataset, Subset):
        whole = read_nested(dataset.dataset, read)
        return None if whole is None else whole[torch.as_tensor(dataset.indices, dtype=torch.int64)]
    if isinstance(dataset, ConcatDataset):
        parts = [part for part in (read_nested(each, read) for each in dataset.datasets) if part is not None]
        return torch.cat(parts) if len(parts) == len(dataset.datasets) else None
    return read(dataset)
