"""Labels that name a class which the model does not have."""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from playbook.doctor import replay
from playbook.doctor.findings import POOR_START, Defect, Evidence, Finding, Place
from playbook.doctor.record import Op
from playbook.doctor.samples import copies, epoch, leaves, size, train_loaders, whole
from playbook.doctor.steps import Step
from playbook.doctor.subject import Subject

LABEL_OUT_OF_RANGE = Defect(
    "label-out-of-range",
    "critical",
    "The loss ends with an error; on an accelerator, with an assertion without a line.",
    explains=("crash", "non-finite", *POOR_START),
    shown_by=Evidence("measured", "the targets of each loss were read before it was computed"),
)
DEFECTS = (LABEL_OUT_OF_RANGE,)

_SECONDS = 0.3
_TOLERANCE = 1e-3  # of probabilities that were interpolated


def label_range(subject: Subject) -> Iterator[Finding | str]:
    """Compares what each loss of a step gets as its target with what it can take, before it fails.

    Cross-entropy takes 0 … K - 1 and its ignore_index, one_hot and gather take indices below the size, binary
    cross-entropy takes 0 … 1. Where the target is a leaf of the batch, that leaf is read for the rest of an epoch.
    """
    numbers = [(number, True) for number in range(len(subject.batches))]
    numbers += [(number, False) for number in range(len(subject.val_batches) if subject.validates else 0)]
    for number, training in numbers:
        for op, target, low, high in _targets(subject.attempt(number, training)):
            if not (int(low) <= target.min() and target.max() <= high):
                yield _finding(subject, op.name, target, low, high, op.place)
                return
    for loss in subject.attempt().losses:
        is_index = loss.kind == "classes" and not loss.target.is_floating_point()
        paths = copies(loss, subject.batches[0]) if is_index else []
        for labels in _rest(subject, paths[0]) if paths else ():
            kept = labels[labels != loss.op.argument(4, "ignore_index", -100)]
            if kept.numel() and (kept.min() < 0 or kept.max() >= loss.num_classes):
                yield _finding(subject, loss.op.name, kept, 0, loss.num_classes - 1, loss.op.place)
                return
    yield "every label is one of the model's classes"


def _targets(step: Step) -> Iterator[tuple[Op, Tensor, float, float]]:
    """Calls that take labels: the labels, without those to ignore, and the range that is allowed."""
    for loss in step.losses:
        target = loss.target.detach()
        if loss.kind == "classes" and not target.is_floating_point() and loss.prediction.dim():
            target = target[target != loss.op.argument(4, "ignore_index", -100)]
            high = loss.num_classes - 1
        elif loss.kind == "binary" and step.is_from_data(loss.target):
            high = 1
            target = torch.where((target < 0) & (target > -_TOLERANCE), 0, target)
            target = torch.where((target > 1) & (target < 1 + _TOLERANCE), 1, target)
        else:
            continue
        if target.numel() and bool(torch.isfinite(target.double()).all()):
            yield loss.op, target, 0, high
    for op in step.record.ops[-1:] if step.error is not None else []:
        index, bound = _index(op)
        if index is not None and index.numel() and step.is_from_data(index):
            yield op, index, 0, bound - 1


def _index(op: Op) -> tuple[Tensor | None, int]:
    """What the call in which a step failed indexes classes with, and their number."""
    first = op.argument(0, "input")
    if op.name == "one_hot":
        bound = op.argument(1, "num_classes", -1)
        return (first, bound) if bound > 0 else (None, 0)
    if op.name in ("gather", "scatter", "scatter_") and isinstance(op.argument(1, "dim"), int):
        index = op.argument(2, "index")
        return (index, first.shape[op.argument(1, "dim")]) if isinstance(index, Tensor) else (None, 0)
    if op.name in ("getitem", "__getitem__") and isinstance(first, Tensor) and first.requires_grad:
        index = op.args[1] if isinstance(op.args[1], tuple) else (op.args[1],)
        last = index[-1]
        if (
            isinstance(last, Tensor)
            and not last.is_floating_point()
            and last.dtype != torch.bool
            and first.dim() == len(index)
        ):
            return last, first.shape[-1]
    return None, 0


def _rest(subject: Subject, path: str) -> Iterator[Tensor]:
    loaders = train_loaders(subject)
    found = whole(loaders[0].dataset) if len(loaders) == 1 else None
    if found is not None and path in found:
        yield found[path]
        return
    for batch in epoch(subject, _SECONDS):
        labels = leaves(batch).get(path)
        if labels is not None and not labels.is_floating_point():
            yield labels


def _finding(subject: Subject, name: str, target: Tensor, low: float, high: float, place: Place | None) -> Finding:
    seen = f"{target.min().item():g} to {target.max().item():g}"
    message = f"{name} gets labels from {seen}, where {low:g} to {high:g} are allowed"
    shift = target.min().item()
    if high == 1 and "binary" in name:
        fix = "y = (y > 0).float()  # 0 or 1"
    elif shift > 0 and target.max().item() - shift <= high:
        fix = f"y = y - {shift:g}  # {low:g} … {high:g}"
    elif target.max().item() > high:
        fix = f"num_classes = {target.max().item() + 1:g}  # or F.cross_entropy(…, ignore_index=…)"
    else:
        fix = f"F.cross_entropy(…, ignore_index={shift:g})"
    return Finding(LABEL_OUT_OF_RANGE, _place(subject, target, high) or place, message, fix)


def _place(subject: Subject, target: Tensor, high: float) -> Place | None:
    """Where labels with these values are made: all of them at once, or the first sample's that is out of range."""
    values = {float(value) for value in target.unique().tolist()}
    bad = {value for value in values if value < 0 or value > high}

    def all_of_them(array: np.ndarray, _: Any) -> bool:  # pragma: no cover - a tracer is not traced
        if array.dtype.kind not in "iuf" or array.size < 8 or (array.dtype.kind == "f" and array.size > 10**5):
            return False
        found = {float(value) for value in np.unique(array)} if array.size < 10**6 else set()
        if array.ndim > 1 and len(found) > 1 and found <= values and found & bad:
            return True  # of a mask, all at once are rare
        return (
            len(found) < 2000
            and values <= found
            and max(found) == max(values)
            and (min(values) >= 0) == (min(found) >= 0)
        )

    place = replay.first_line(subject, all_of_them, None)
    if place is not None:
        return place
    deadline = time.monotonic() + 2 * _SECONDS
    for loader in train_loaders(subject)[:1]:
        for number in range(size(loader.dataset) or 0):
            if time.monotonic() > deadline:
                return None
            whole_numbers = [leaf for leaf in leaves(loader.dataset[number]).values() if not leaf.is_floating_point()]
            if any(bad & _first_values(leaf.numpy()) for leaf in whole_numbers):
                wanted = bad - {float(number)}  # the index may be equal to the label
                run = partial(loader.dataset.__getitem__, number)
                return replay.first_line(subject, lambda array, _: bool(wanted & _first_values(array)), run=run)  # noqa: B023  # called before the next turn
    return None


def _first_values(array: np.ndarray) -> set[float]:
    return {float(value) for value in array.flat[:5000]}
