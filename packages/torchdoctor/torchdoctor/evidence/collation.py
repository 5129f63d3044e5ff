"""Finds fields of a batch that the user's collate function puts in different orders."""

import copy
import inspect
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from torchdoctor import source
from torchdoctor.evidence.samples import dataset_size, leaves
from torchdoctor.findings import Place
from torchdoctor.running.batches import unpack_sequences

ORDERS = ("sort", "argsort", "sorted", "randperm", "permutation", "shuffle", "sample")
_TOGETHER = 12  # samples for the collate function


def reordered_fields(loader: DataLoader) -> tuple[str, str] | None:
    """Two fields of a batch whose rows the user's collate function leaves in different orders."""
    number = min(_TOGETHER, dataset_size(loader.dataset) or 0)
    if loader.batch_sampler is None or ordering_line(loader.collate_fn) is None or number < 4:
        return None
    samples = [loader.dataset[index] for index in range(number)]
    try:
        together = leaves(unpack_sequences(loader.collate_fn(copy.deepcopy(samples))))
        alone = [leaves(unpack_sequences(loader.collate_fn([copy.deepcopy(sample)]))) for sample in samples]
    except Exception:  # it may need more than one sample; if it always fails, another probe tells
        return None
    rows = {path: leaf for path, leaf in together.items() if leaf.dim() and len(leaf) == number}
    if any(leaf.sort()[0].tolist() == [*range(number)] for leaf in rows.values() if leaf.dim() == 1):
        return None  # the order comes with the batch, for the step to use
    matches = {
        path: np.array([[_is_padded_sample(row, one[path][0]) for row in leaf] for one in alone])  # (sample, row)
        for path, leaf in rows.items()
        if all(path in one and len(one[path]) == 1 for one in alone)
    }
    for path, match in matches.items():
        order = match.argmax(axis=1)
        if (match.sum(axis=1) != 1).any() or (order == np.arange(number)).all():
            continue
        for other, fits in matches.items():
            if fits.diagonal().all() and not fits[np.arange(number), order].all():
                return path, other
    return None


def _is_padded_sample(row: Tensor, one: Tensor) -> bool:
    """Whether a row is this sample, perhaps padded."""
    if row.dim() != one.dim() or any(length < own for length, own in zip(row.shape, one.shape, strict=True)):
        return False
    return torch.equal(row[tuple(slice(length) for length in one.shape)], one)


def ordering_line(collate: Any) -> Place | None:
    """The line in the user's collate function that sorts or shuffles, or that of the function itself."""
    collate = getattr(collate, "func", collate)
    function = collate if inspect.isroutine(collate) else type(collate).__call__
    place = source.definition(function)
    return place and (source.first_call([function], *ORDERS) or place)
