"""Arrays of inputs and of labels among the variables of a line."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from playbook.doctor import replay

FEWEST = 60  # samples that tell anything
_LEFT_OUT = 8  # of the least and of the largest labels
_SAME_CLASSES = 0.9  # of the labels beside the same inputs


def share_of_kept_labels(a: np.ndarray, b: np.ndarray, x: np.ndarray, y: np.ndarray) -> float | None:
    """The share of equal labels among rows of x that are rows of a, shifted and scaled by column or as a whole."""
    ours, theirs = (part.reshape(len(part), -1).astype(np.float64) for part in (x, a[:3000]))
    if ours.shape[1] != theirs.shape[1]:
        return None
    whole = [(part - part.mean()) / (part.std() + 1e-12) for part in (ours, theirs)]
    columns = [(part - part.mean(0)) / (part.std(0) + 1e-6) for part in (ours, theirs)]
    for left, right in ((whole[0][:200], whole[1]), (columns[0][:200], columns[1])):
        distances = torch.cdist(torch.from_numpy(left), torch.from_numpy(right))
        least, index = distances.min(dim=1)
        same = (least < 0.25 * distances.median(dim=1).values).numpy()
        if same.mean() > 0.8:
            found = b[index.numpy()]
            if not (y % 1).any() and np.isin(found[same], y).mean() < _SAME_CLASSES:
                return None  # other labels, of more classes
            return float(np.isclose(found, y[:200], atol=1e-3 * y.std())[same].mean())
    return None


def pairs_by_name(local: dict[str, Any]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Inputs and labels that stand under the same names in two dicts, or came one by one; words as numbers."""
    dicts = [thing for thing in local.values() if isinstance(thing, dict) and len(thing) >= FEWEST]
    for one, other in itertools.permutations(dicts, 2):
        inputs = replay.array(list(one.values())) if len(one) == len(other) else None
        if inputs is None or inputs.ndim < 2:
            continue
        named = [other[name] for name in one] if one.keys() == other.keys() else list(other.values())
        labels = np.unique(named, return_inverse=True)[1] if isinstance(named[0], str) else replay.array(named)
        if labels is not None:
            yield inputs, labels


def candidates(
    local: dict[str, Any], values: set[Any], everything: np.ndarray | None = None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Arrays with a row a sample, and arrays with the labels' values, perhaps scaled, among what a line knows."""
    inputs, labels = [], []
    continuous = any(value % 1 for value in values)
    for thing in replay.parts(local.values()):
        array = replay.array(thing)
        if array is None or not array.ndim or len(array) < FEWEST:
            continue
        if array.ndim == 1 or array[0].size == 1:
            found = set(np.unique(array).tolist())
            if found >= values and (continuous or len(found) <= 1.2 * len(values) + 2):
                labels.append(array.reshape(-1))
            elif everything is not None and (scaled := _rescaled(array.reshape(-1), everything)) is not None:
                labels.append(scaled)
        elif array[0].size > 1:
            inputs.append(array)
    return inputs[:6], labels[:6]


def _rescaled(values: np.ndarray, labels: np.ndarray) -> np.ndarray | None:
    """Values on the scale of the labels, if these are the same but for scale, shift, order and some left out."""
    if not len(labels) <= len(values) <= 2 * len(labels) or len(np.unique(labels)) < FEWEST:
        return None
    low, *_, high = ours = np.sort(labels).astype(np.float64)
    theirs = np.sort(values).astype(np.float64)
    for left, right in itertools.product(theirs[:_LEFT_OUT], theirs[-_LEFT_OUT:]):  # which may be low and high
        scale = (high - low) / (right - left) if right > left else 0.0
        scaled = (theirs - left) * scale + low
        index = np.searchsorted(scaled, ours).clip(1, len(scaled) - 1)
        near = np.minimum(np.abs(scaled[index] - ours), np.abs(scaled[index - 1] - ours))
        if scale and near.max() < 1e-4 * ours.std():
            return (values - left) * scale + low
    return None
