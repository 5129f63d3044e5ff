"""Counts validation windows that overlap training windows of the same series."""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from torchdoctor.evidence.samples import leaves, spread_indices, until_deadline

_TRAIN, _VAL, _SECONDS = 3000, 64, 0.5  # windows that are read; for those of the training
_VALUES, _TOKENS = 8, 16  # at least, of the steps that are compared as one: real numbers; whole ones may recur
_DISTINCT, _FEWEST = 4, 4  # values among these; such steps in a window
_BYTES = (torch.bool, torch.uint8)  # masks, pictures and texts


def count_overlapping_windows(train: Any, val: Any) -> tuple[int, int]:
    """How many validation windows share half of their steps with training windows, and how many were read.

    A step counts if it stands at other positions there, and nowhere at its own: what does, as a grid of places or
    times, belongs to every sample. Where samples have real targets, most of these must be in training samples too: what
    is known of the past when a forecast begins may have been trained on.
    """
    most = (0, 0)
    for turn in (False, True):  # (steps, values), or (values, steps)
        known, values = defaultdict[int, set[int]](set), set[float]()
        for window, targets in until_deadline(_windows(train, _TRAIN, turn), _SECONDS):
            values |= {*targets.tolist(), *window.flatten().tolist()}
            for position, step in _steps(window):
                known[hash(step.tobytes())].add(position)
        windows = list(_windows(val, _VAL, turn)) if known else []
        leaks = [window for window, targets in windows if _are_known(targets, values)]
        most = max(most, (sum(_is_shared(window, known) for window in leaks), len(windows)))
    return most


def _are_known(targets: np.ndarray, values: set[float]) -> bool:
    """Whether most targets are among these values, or there are no targets."""
    are_known = [target in values for target in targets.tolist()]
    return not are_known or 2 * sum(are_known) > len(are_known)


def _is_shared(window: np.ndarray, known: dict[int, set[int]]) -> bool:
    steps = [(position, step) for position, step in _steps(window) if len(np.unique(step)) >= _DISTINCT]
    positions = [(position, known.get(hash(step.tobytes()), {position})) for position, step in steps]
    same = sum(position not in others for position, others in positions)
    return len(steps) >= _FEWEST and 2 * same >= len(steps)


def _windows(dataset: Any, most: int, turn: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The largest tensor of each sample as (steps, values), and the floats of the others."""
    for number in spread_indices(dataset, most):
        parts = list(leaves(dataset[number]).values())
        largest = max(parts, key=lambda leaf: leaf.numel(), default=None)
        if largest is None or not largest.dim() or (turn and largest.dim() != 2) or largest.dtype in _BYTES:
            return
        rows = largest.T if turn else largest.reshape(len(largest), -1)
        real = [leaf for leaf in parts if leaf is not largest and leaf.is_floating_point()]
        others = [leaf.float().flatten() for leaf in real if len(leaf.unique()) != 2]  # no masks
        targets = torch.cat([torch.zeros(0), *others]).numpy()
        yield (rows.float() if rows.is_floating_point() else rows).contiguous().numpy(), targets


def _steps(window: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each step together with enough following steps to be distinctive."""
    least = _VALUES if window.dtype.kind == "f" else max(_TOKENS, window.size // 2)
    length = math.ceil(least / max(1, window.shape[1]))
    return ((position, window[position : position + length]) for position in range(len(window) - length + 1))
