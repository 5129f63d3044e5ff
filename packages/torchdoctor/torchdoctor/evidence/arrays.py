"""Converts values of the user's variables to numeric arrays."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

_LARGEST = 4_000_000  # elements
_LONGEST, _NUM_ALIKE = 5000, 50  # items of a list that are taken; that are compared in shape
_MOST_PARTS, _MOST_NAMES, _DEPTH = 8, 32, 4


def as_array(value: Any) -> np.ndarray | None:
    """A tensor, table or list as a numeric array; None if it is something else, empty or very large."""
    kind = type(value).__name__
    if kind in ("DataFrame", "Series"):
        value = (value.select_dtypes("number") if kind == "DataFrame" else value).to_numpy()
    elif isinstance(value, Tensor):
        is_plain = value.layout == torch.strided and not value.is_nested and value.dtype != torch.bfloat16
        value = value.detach().cpu().numpy() if is_plain else None
    elif isinstance(value, list | tuple):
        value = _stacked(value)
    elif isinstance(value, bool | int | float | np.generic):
        value = np.asarray(value)
    is_array = isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and 0 < value.size <= _LARGEST
    return value if is_array else None


def _stacked(items: list[Any] | tuple[Any, ...]) -> np.ndarray | None:
    is_numeric = [isinstance(item, int | float | np.generic | np.ndarray | Tensor) for item in items[:_NUM_ALIKE]]
    if len(items) < 2 or not all(is_numeric) or len({np.shape(item) for item in items[:_NUM_ALIKE]}) > 1:
        return None
    try:
        return np.stack([np.asarray(item) for item in items[:_LONGEST]])
    except (ValueError, TypeError, RuntimeError):  # later ones have other shapes, or are no numbers
        return None


def nested_values(values: Iterable[Any], depth: int = _DEPTH) -> Iterator[Any]:
    """The values, and the contents of small tuples and dicts, loaders and data sets of tensors among them."""
    for value in values:
        yield value
        if depth:
            yield from nested_values(_direct_contents(value), depth - 1)


def _direct_contents(value: Any) -> Iterable[Any]:
    match value:
        case TensorDataset():
            return value.tensors
        case Subset() | DataLoader():
            return [value.dataset]
        case ConcatDataset():
            return value.datasets[:_MOST_PARTS]
        case tuple() if len(value) <= _MOST_PARTS:
            return value
        case dict() if len(value) <= _MOST_NAMES:
            return value.values()
    return ()
