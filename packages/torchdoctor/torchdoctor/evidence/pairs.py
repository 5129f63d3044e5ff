"""Finds pairs of inputs and labels among local variables."""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import TensorDataset

from torchdoctor.evidence.arrays import as_array, nested_values

FEWEST = 60  # samples that tell anything
_ROWS, _OTHERS = 200, 3000  # of the training, and of other inputs, that are compared
_MOST = 6  # arrays of a kind
_NEAR, _MATCHED = 0.25, 0.8  # of the usual distance, so that rows are the same; of the rows
_LEFT_OUT = 8  # of the least and of the largest labels
_SAME_CLASSES = 0.9  # of the labels beside the same inputs


class Training(NamedTuple):
    """The inputs and labels that the step gets.

    Args:
        inputs: of some samples, a row each.
        labels: theirs.
        all_labels: of the whole data set, if at hand.
    """

    inputs: np.ndarray
    labels: np.ndarray
    all_labels: np.ndarray | None


Pair = tuple[np.ndarray, np.ndarray]


def pairs_by_name(variables: dict[str, Any], training: Training) -> Iterator[Pair]:
    """Inputs and labels from two dicts, matched by key or else by order; words as numbers."""
    dicts = [thing for thing in variables.values() if isinstance(thing, dict) and len(thing) >= FEWEST]
    for one, other in itertools.permutations(dicts, 2):
        rows = as_array(list(one.values())) if len(one) == len(other) else None
        if rows is None or rows.ndim < 2:
            continue
        named = [other[name] for name in one] if one.keys() == other.keys() else list(other.values())
        words = np.unique(named, return_inverse=True)[1] if isinstance(named[0], str) else named
        yield from ((rows, labels) for labels in candidates({"": words}, training)[1])


def pairs_together(variables: dict[str, Any], training: Training) -> Iterator[Pair]:
    """The first inputs and labels of each tuple and data set of tensors."""
    for part in nested_values(variables.values()):
        if isinstance(part, TensorDataset | tuple):
            inputs, labels = candidates({"": getattr(part, "tensors", part)}, training)
            yield from zip(inputs[:1], labels[:1], strict=False)


def candidates(variables: dict[str, Any], training: Training) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Arrays with one row a sample, and arrays with the labels' values, perhaps rescaled."""
    inputs, labels, values = [], [], set(np.unique(training.labels).tolist())
    is_continuous = any(value % 1 for value in values)
    for rows in map(as_array, nested_values(variables.values())):
        if rows is None or not rows.ndim or len(rows) < FEWEST:
            continue
        if rows[0].size > 1:
            inputs.append(rows)
            continue
        column, others = rows.reshape(-1), set(np.unique(rows).tolist())
        if others >= values and (is_continuous or len(others) <= 1.2 * len(values) + 2):
            labels.append(column)
        elif training.all_labels is not None and (scaled := _rescaled(column, training.all_labels)) is not None:
            labels.append(scaled)
    return inputs[:_MOST], labels[:_MOST]


def _rescaled(values: np.ndarray, labels: np.ndarray) -> np.ndarray | None:
    """Values on the scale of the labels, if they are the same up to scale, shift, order and a few missing ones."""
    if not len(labels) <= len(values) <= 2 * len(labels) or len(np.unique(labels)) < FEWEST:
        return None
    ours, theirs = np.sort(labels).astype(np.float64), np.sort(values).astype(np.float64)
    for low, high in itertools.product(theirs[:_LEFT_OUT], theirs[-_LEFT_OUT:]):  # which may be our least and largest
        scale = (ours[-1] - ours[0]) / (high - low) if high > low else 0.0
        scaled = (theirs - low) * scale + ours[0]
        index = np.searchsorted(scaled, ours).clip(1, len(scaled) - 1)
        near = np.minimum(np.abs(scaled[index] - ours), np.abs(scaled[index - 1] - ours))
        if scale and near.max() < 1e-4 * ours.std():
            return (values - low) * scale + ours[0]
    return None


def share_of_kept_labels(inputs: np.ndarray, labels: np.ndarray, training: Training) -> float | None:
    """The share of training inputs with unchanged labels among others, which may be rescaled.

    None if less than four fifths are among them, or if the labels are others.
    """
    rows = [part.reshape(len(part), -1).astype(np.float64) for part in (training.inputs, inputs[:_OTHERS])]
    if rows[0].shape[1] != rows[1].shape[1]:
        return None
    y = training.labels
    for axis in (None, 0):
        ours, theirs = ((part - part.mean(axis)) / (part.std(axis) + 1e-6) for part in rows)
        distances = torch.cdist(torch.from_numpy(ours[:_ROWS]), torch.from_numpy(theirs))
        least, index = distances.min(dim=1)
        same = (least < _NEAR * distances.median(dim=1).values).numpy()
        if same.mean() > _MATCHED:
            beside = labels[index.numpy()]
            if not (y % 1).any() and np.isin(beside[same], y).mean() < _SAME_CLASSES:
                return None  # other labels, of more classes
            return float(np.isclose(beside, y[:_ROWS], atol=1e-3 * y.std())[same].mean())
    return None
