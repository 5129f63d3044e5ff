"""Labels outside of the model's classes."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdoctor.evidence import replay
from torchdoctor.evidence.samples import dataset_size, leaves, read_leaf, target_paths, train_loaders, until_deadline
from torchdoctor.findings import POOR_START, Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.record import Op
from torchdoctor.running.steps import Step
from torchdoctor.running.subject import Subject

LABEL_OUT_OF_RANGE = Defect(
    "label-out-of-range",
    "critical",
    "The loss ends with an error; on an accelerator, with an assertion without a line.",
    explains=("crash", "non-finite", *POOR_START),
    shown_by=Evidence("measured", "the targets of each loss were read before it was computed"),
)

_SECONDS = 0.3
_TOLERANCE = 1e-3  # of probabilities that were interpolated


def label_range(subject: Subject) -> Iterator[Finding | str]:
    """Compares the target of each loss with its range of classes, before it fails.

    Cross-entropy takes 0 … K - 1 and its ignore_index, one_hot and gather take indices below the size, binary
    cross-entropy takes 0 … 1. Where the target is a leaf of the batch, that leaf is read for the rest of an epoch.
    """
    number = 0
    for op, labels, high in _all_labels(subject):
        if labels.numel() and (labels.min() < 0 or labels.max() > high):
            yield _finding(subject, op, labels, high)
            return
        number += labels.numel()
    if number:
        yield "every label is one of the model's classes"


PROBE = Probe(look=label_range, defects=(LABEL_OUT_OF_RANGE,))


def _all_labels(subject: Subject) -> Iterator[tuple[Op, Tensor, int]]:
    """Calls that take labels, with labels of a batch and the largest that is allowed."""
    numbers = [(number, True) for number in range(len(subject.batches))]
    numbers += [(number, False) for number in range(len(subject.val_batches) if subject.validates else 0)]
    for number, training in numbers:
        yield from _labels(subject.attempt(number, training))
    steps = [subject.attempt(number) for number in range(len(subject.batches))]
    numbers_of_classes = {tuple(loss.num_classes for loss in step.losses) for step in steps}
    for loss in subject.attempt().losses if len(numbers_of_classes) == 1 else ():  # else each sample has its own
        if loss.kind == "classes" and not loss.target.is_floating_point():
            for path in target_paths(loss, subject.batches[0])[:1]:
                for labels in read_leaf(subject, path, _SECONDS):
                    yield loss.op, loss.not_ignored(labels), loss.num_classes - 1


def _labels(step: Step) -> Iterator[tuple[Op, Tensor, int]]:
    for loss in step.losses:
        target = loss.target.detach()
        if loss.kind == "classes" and not target.is_floating_point() and loss.prediction.dim():
            yield loss.op, loss.not_ignored(target), loss.num_classes - 1
        elif loss.kind == "binary" and step.is_from_data(loss.target) and target.isfinite().all():
            is_close = (target > -_TOLERANCE) & (target < 1 + _TOLERANCE)
            yield loss.op, torch.where(is_close, target.clamp(0, 1), target), 1
    for op in step.record.ops[-1:] if step.error is not None else []:
        index, bound = _index(op)
        if index is not None and step.is_from_data(index):
            yield op, index, bound - 1


def _index(op: Op) -> tuple[Tensor | None, int]:
    """What the call in which a step failed indexes classes with, and their number."""
    first, index, bound = op.argument(0, "input"), None, 0
    if op.name == "one_hot":
        index, bound = first, op.argument(1, "num_classes", -1)
    elif op.name in ("gather", "scatter", "scatter_"):
        index, dim = op.argument(2, "index"), op.argument(1, "dim")
        bound = first.shape[dim] if isinstance(dim, int) else 0
    elif op.name == "__getitem__" and isinstance(first, Tensor) and first.requires_grad:
        indices = op.args[1] if isinstance(op.args[1], tuple) else (op.args[1],)
        index, bound = indices[-1], first.shape[-1] if first.dim() == len(indices) else 0
    is_index = isinstance(index, Tensor) and not index.is_floating_point() and index.dtype != torch.bool
    return (index, bound) if is_index and bound > 0 else (None, 0)


def _finding(subject: Subject, op: Op, labels: Tensor, high: int) -> Finding:
    least, largest = labels.min().item(), labels.max().item()
    message = f"{op.name} gets labels from {least:g} to {largest:g}, where 0 to {high} are allowed"
    if high == 1 and "binary" in op.name:
        fix, values = "y = (y > 0).float()  # 0 or 1", {"variant": "binary"}
    elif least > 0 and largest - least <= high:
        fix, values = f"y = y - {least:g}  # 0 … {high}", {"low": f"{least:g}"}
    elif largest > high:
        fix, values = f"num_classes = {largest + 1:g}  # or F.cross_entropy(…, ignore_index=…)", {}
    else:
        fix, values = f"F.cross_entropy(…, ignore_index={least:g})", {"ignored": f"{least:g}"}
    numbers = _values(labels.numpy())
    bad = {number for number in numbers if not 0 <= number <= high}
    place = _made_at(subject, numbers, bad) or _read_at(subject, bad) or op.place
    return Finding(LABEL_OUT_OF_RANGE, place, message, fix, values)


def _made_at(subject: Subject, values: set[float], bad: set[float]) -> Place | None:
    """Where labels with all of these values are made, or those of a mask with some of them."""

    def is_made(array: np.ndarray, _: Any) -> bool:  # pragma: no cover - a tracer is not traced
        if array.size < 8 or array.size > (10**6 if array.dtype.kind in "iu" else 10**5):
            return False
        labels = _values(array)
        if array.ndim > 1 and len(labels) > 1 and labels <= values and labels & bad:
            return True
        return values <= labels and max(labels) == max(values) and (min(values) >= 0) == (min(labels) >= 0)

    return replay.first_line(subject, is_made, None)


def _read_at(subject: Subject, bad: set[float]) -> Place | None:
    """Where the first sample gets its label that has one out of range."""
    for loader in train_loaders(subject)[:1]:
        for number in until_deadline(range(dataset_size(loader.dataset) or 0), 2 * _SECONDS):
            whole_numbers = [leaf for leaf in leaves(loader.dataset[number]).values() if not leaf.is_floating_point()]
            if any(bad & _values(leaf.numpy()) for leaf in whole_numbers):
                wanted = bad - {float(number)}  # the index may be equal to the label
                run = partial(loader.dataset.__getitem__, number)
                return replay.first_line(
                    subject, lambda array, _, wanted=wanted: bool(wanted & _values(array)), run=run
                )
    return None


def _values(array: np.ndarray) -> set[float]:
    return set(np.unique(array).astype(float).tolist())
