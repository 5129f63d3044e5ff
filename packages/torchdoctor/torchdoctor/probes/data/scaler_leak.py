"""Scalers, imputers and selectors of features that are fitted to the validation data as well."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from torchdoctor.evidence import scalers
from torchdoctor.evidence.contents import FEWEST, has_real_values, shared_samples
from torchdoctor.evidence.overlapping_windows import count_overlapping_windows
from torchdoctor.evidence.samples import leaves, spread_indices, train_loaders, until_deadline
from torchdoctor.findings import LOADER, Defect, Finding
from torchdoctor.probe import Probe
from torchdoctor.running.subject import Subject

SCALER_LEAK = Defect(
    "scaler-leak",
    "advice",
    "Scores of the validation are a little better than those of new data, whose range and mean nobody knows.",
    shown_by=LOADER,
)
_CHOSEN = (
    "Features were chosen by the labels of the validation: its scores are too good, even where nothing can be learned."
)
_SAMPLES, _SECONDS = 200, 0.4  # that are read of each data set
_NUMBERS = 4  # that are alike by no chance
_MANY = 16  # of a sample's columns that may each have a scaler

Key = tuple[int, int, bytes]  # columns, rows and values of the beginning of a sample


def scaler_leak(subject: Subject, most: float = 0.9) -> Iterator[Finding | str]:
    """Looks for validation samples in the data that each scikit-learn scaler was fitted to.

    A sample is a row of the table, or begins with consecutive ones, as the scaler gives them back, or its first or last
    columns are such a row. Where nearly all samples of both are there, the scaler knows what should be new. Data that
    share samples are another defect. Selectors that read the labels of the validation make noise look like knowledge
    (Ambroise and McLachlan 2002, "Selection bias in gene extraction on the basis of microarray gene-expression data").

    Args:
        subject: the training that has just begun.
        most: share of the samples that a scaler was fitted to.
    """
    trains, vals = train_loaders(subject), subject.loaders("val")
    pairs = [(train.dataset, val.dataset) for train in trains for val in vals]
    if not pairs or not scalers.fits or any(shared_samples(*pair)[0] or _overlap(*pair) for pair in pairs):
        return
    is_right = False
    for fit in scalers.fits:
        table = _Table(fit.scaled())
        shares = [(table.share(train), table.share(val)) for train, val in pairs]
        is_right |= any(train >= most > val for train, val in shares)
        if min(map(min, shares)) >= most:
            kind, number = type(fit.scaler).__name__, len(fit.table)
            message = f"{kind} is fitted to {number} rows, among which are those of the validation"
            defect, fix = SCALER_LEAK, "scaler.fit(train_rows)  # and transform the others with it"
            if fit.reads_labels:
                defect = replace(SCALER_LEAK, severity="warning", impact=_CHOSEN)
                fix = "selector.fit(train_rows, train_labels)  # and transform the others with it"
            yield Finding(defect, fit.place, message, fix)
            return
    if is_right:
        yield "scalers are fitted to the training data alone"


PROBE = Probe(look=scaler_leak, defects=(SCALER_LEAK,))


def _overlap(train: Any, val: Any) -> bool:
    """Whether most windows of a series share steps with those of the training."""
    number, of = count_overlapping_windows(train, val)
    return 2 * number > of


class _Table:
    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.known: dict[tuple[int, int], set[bytes]] = {}

    def share(self, dataset: Any) -> float:
        """Of the samples of a data set that can be told from others, those that are in the table, or begin there."""
        samples = [
            self._keys(dataset[number]) for number in until_deadline(spread_indices(dataset, _SAMPLES), _SECONDS)
        ]
        known = [any(values in self._begins(*shape) for *shape, values in keys) for keys in samples if keys]
        return sum(known) / len(known) if len(known) >= FEWEST else 0.0

    def _keys(self, sample: Any) -> list[Key]:
        return [key for leaf in leaves(sample).values() if leaf.is_floating_point() for key in self._of_leaf(leaf)]

    def _of_leaf(self, leaf: Tensor) -> Iterator[Key]:
        if leaf.dim() not in (1, 2):  # a label, or an image
            return
        values, columns = leaf.float().numpy(), self.values.shape[1]
        ways = [values, values.T] if values.ndim == 2 else [values[None] if columns > 1 else values[:, None]]
        ways = [way[:, [number]] for way in ways for number in range(way.shape[1])[:_MANY]] if columns == 1 else ways
        ways += [part for way in ways if way.shape[1] > columns > 1 for part in (way[:, :columns], way[:, -columns:])]
        for rows in ways:
            width = rows.shape[1]
            length = math.ceil(_NUMBERS / width) if width and len(rows) > 1 else 1
            if 0 < width <= columns and len(rows) >= length and has_real_values(rows[:length]):
                yield width, length, np.ascontiguousarray(rows[:length].T).tobytes()

    def _begins(self, width: int, length: int) -> set[bytes]:
        """All places of the table where so many rows begin, of its first columns and of its last."""
        if (width, length) not in self.known:
            parts = [self.values[:, :width], self.values[:, -width:]] if len(self.values) >= length else []
            begins = [begin for part in parts for begin in sliding_window_view(part, length, axis=0)]
            self.known[width, length] = {np.ascontiguousarray(begin).tobytes() for begin in begins}
        return self.known[width, length]
