"""Finds samples that two data sets share, by content."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset

from torchdoctor.evidence.arrays import as_array
from torchdoctor.evidence.samples import (
    all_samples,
    dataset_size,
    leaves,
    spread_indices,
    underlying_dataset,
    until_deadline,
)

FEWEST = 8  # samples: a graph whose nodes are split by a mask is one sample of both
_SAMPLES, _ROWS, _SECONDS = 5000, 20000, 0.4
SAME_DATASET, BY_INDEX = "which are the same data set", "by index"

Shared = tuple[float, int, str]  # share and number of the validation samples that are training samples too, and how


def shared_samples(train: Any, val: Any) -> Shared:
    """The share and number of validation samples that are also training samples; a share of 0 if it may be chance."""
    if min(dataset_size(train) or 0, dataset_size(val) or 0) < FEWEST:
        return 0.0, 0, ""
    if train is val:
        return 1.0, len(val), SAME_DATASET
    if isinstance(train, Subset) and isinstance(val, Subset) and train.dataset is val.dataset:
        theirs = set(map(int, val.indices))
        if same := len(theirs & set(map(int, train.indices))):
            return same / len(theirs), same, BY_INDEX
    ways = [(*shared_keys(sample_keys(train), sample_keys(val)), "by content")]
    if train is underlying_dataset(train) and type(train) is type(underlying_dataset(val)):
        ways += _by_attribute(train, underlying_dataset(val))
    return max(ways)


def _by_attribute(train: Any, val: Any) -> list[Shared]:
    """The same for arrays with one row a sample that both data sets keep beneath any augmentation."""
    ways = []
    for name, value in getattr(train, "__dict__", {}).items():
        ours, theirs = as_array(value), as_array(vars(val).get(name))
        if ours is None or theirs is None or ours is theirs or not ours.ndim or ours[0].size < 4:
            continue
        if len(ours) == dataset_size(train) and theirs.shape[:1] == (dataset_size(val),):
            ways.append((*shared_keys(_row_keys(ours[:_ROWS]), _row_keys(theirs[:_ROWS])), f"by the rows of {name}"))
    return ways


def sample_keys(dataset: Any) -> list[tuple[int, bool]]:
    """A hash of each sample that can be read in time: of its tensors without labels, or of all if they are very small.

    With it, whether it has four different numbers that are not whole: two such are not equal by chance.
    """
    tensors, identities = all_samples(dataset), []
    numbers = spread_indices(dataset, _SAMPLES if tensors is None else 10 * _SAMPLES)
    for number in until_deadline(numbers, _SECONDS) if tensors is None else numbers:
        sample = leaves(dataset[number]) if tensors is None else {path: rows[number] for path, rows in tensors.items()}
        identities.append(sample_key(sample))
    return identities


def sample_key(sample: dict[str, Tensor]) -> tuple[int, bool]:
    """The hash of one sample, given its tensors."""
    return _key([(leaf.float() if leaf.dtype == torch.bfloat16 else leaf).numpy() for leaf in sample.values()])


def _key(arrays: list[np.ndarray]) -> tuple[int, bool]:
    largest = max(arrays, key=np.size, default=np.zeros(0))
    if largest.size >= 4:  # not the label; numbers of a row count beside its categories
        arrays = [
            part for part in arrays if 2 * part.size >= largest.size or (part.dtype.kind == "f" and part.size > 1)
        ]
    return hash(tuple((part.shape, part.tobytes()) for part in arrays)), has_real_values(largest)


def _row_keys(rows: np.ndarray) -> list[tuple[int, bool]]:
    """The hash of each row of an array."""
    return [_key([row]) for row in rows]


def has_real_values(array: np.ndarray) -> bool:
    """Whether an array has at least four different fractional numbers."""
    return array.dtype.kind == "f" and len(np.unique(array[array != np.round(array)].flat[:64])) >= 4


def shared_keys(ours: list[tuple[int, bool]], theirs: list[tuple[int, bool]]) -> tuple[float, int]:
    """The share and number of their keys that are also ours; a share of 0 where that may be chance.

    Samples of few possible values, as short texts have, coincide by chance: they must do so five times as often as
    within our own, plus 1 %. Real numbers do not: 1 % is enough, unless every sample holds one thing, such as a grid.
    """
    if min(len(ours), len(theirs)) < FEWEST:
        return 0.0, 0
    known, are_real = {key for key, _ in ours}, all(is_real for _, is_real in ours + theirs)
    repeated = 1 - len(known) / len(ours)
    same = sum(key in known for key, _ in theirs)
    share = same / len(theirs)
    is_chance = repeated > 0.5 or share <= 0.01 if are_real else share <= 0.01 + 5 * repeated
    return 0.0 if is_chance else share, same
