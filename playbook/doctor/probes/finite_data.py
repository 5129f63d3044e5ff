"""NaN and infinity in the data."""

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from playbook.doctor import replay
from playbook.doctor.findings import POOR_START, Defect, Evidence, Finding, Place
from playbook.doctor.samples import epoch, leaves, size, train_loaders, whole
from playbook.doctor.subject import Subject

NON_FINITE_DATA = Defect(
    "non-finite-data",
    "critical",
    "One NaN reaches all weights at the next step.",
    explains=("non-finite", "unnormalized-input", *POOR_START),
    shown_by=Evidence("measured", "the values of an epoch of batches were checked"),
)
DEFECTS = (NON_FINITE_DATA,)

_SECONDS = 0.3
_SAMPLES, _TOGETHER = 500, 50


def finite_data(subject: Subject) -> Iterator[Finding | str]:
    """Looks for NaN and infinity in an epoch of training batches and in the first validation batches.

    Missing values may be marked by NaN and masked in the step: a batch counts only if its loss or a gradient of it is
    not finite either, or the step ends with an error.
    """
    kinds = [("training", subject.batches), ("validation", subject.val_batches), ("training", _later(subject))]
    batches = 0
    for kind, source in kinds:
        for batch in source:
            batches += 1
            bad = {path: leaf for path, leaf in leaves(batch).items() if not _finite(leaf)}
            if not bad or not _spoils(subject, batch):
                continue
            path, leaf = next(iter(bad.items()))
            number = int((~torch.isfinite(leaf)).sum())
            what = "NaN" if torch.isnan(leaf).any() else "infinite"
            name = f" of leaf {path}" if path else ""
            message = (
                f"{number} of {leaf.numel()} values{name} are {what} in a {kind} batch, and so is a loss or gradient"
            )
            fix = "mean = np.nanmean(x_train, axis=0); x = np.where(np.isnan(x), mean, x)  # or drop those samples"
            yield Finding(NON_FINITE_DATA, _place(subject, leaf), message, fix)
            return
    yield f"all values are finite in {batches} batches" if batches else "no batch"


def _later(subject: Subject) -> Iterator[Any]:
    """The rest of an epoch, unless the tensors that it is made of are finite, and only stacked."""
    for loader in train_loaders(subject):
        found = whole(loader.dataset)
        if found is None or loader.collate_fn is not default_collate or not all(map(_finite, found.values())):
            yield from epoch(subject, _SECONDS)
            return


def _finite(leaf: Tensor) -> bool:
    return not leaf.is_floating_point() or bool(torch.isfinite(leaf).all())


def _spoils(subject: Subject, batch: Any) -> bool:
    subject.model.zero_grad()
    torch.manual_seed(0)
    try:
        loss = subject.train(batch)
    except (RuntimeError, ValueError, IndexError):
        return True
    if loss is None:  # manual optimization: whatever backward it did, its gradients are there
        record = subject.record(batch).record
        return any(op.grad and not _finite(out) for op in record.ops for out in op.outputs if out.dim() == 0)
    if not torch.isfinite(loss).all():
        return True
    if loss.requires_grad:
        loss.sum().backward()
    grads = [parameter.grad for parameter in subject.model.parameters() if parameter.grad is not None]
    return any(not torch.isfinite(grad).all() for grad in grads)


def _place(subject: Subject, leaf: Tensor) -> Place | None:
    wanted = np.isnan if bool(torch.isnan(leaf).any()) else np.isinf

    def holds(array: np.ndarray, _: Any) -> bool:
        return array.dtype.kind == "f" and bool(wanted(array).any())

    spoilt = 0
    for loader in train_loaders(subject)[:1]:
        for number in range(min(size(loader.dataset) or 0, _SAMPLES)):
            if _is_spoilt(loader.dataset[number]):
                spoilt = number
                break
    return replay.first_line(subject, holds, spoilt) or replay.first_line(subject, holds, run=_collating(subject))


def _is_spoilt(thing: Any) -> bool:
    return any(not _finite(part) for part in leaves(thing).values())


def _collating(subject: Subject) -> Callable[[], Any]:
    """Puts samples together of which a batch is spoilt that are not so each on its own."""
    for loader in train_loaders(subject)[:1]:
        number = min(size(loader.dataset) or 0, _SAMPLES)
        for start in range(0, number, _TOGETHER) if loader.collate_fn is not None else ():
            samples = [loader.dataset[index] for index in range(start, min(start + _TOGETHER, number))]
            if _is_spoilt(loader.collate_fn(copy.deepcopy(samples))):
                return partial(loader.collate_fn, samples)
    return lambda: None
