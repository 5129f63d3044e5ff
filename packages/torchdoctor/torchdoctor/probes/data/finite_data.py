"""NaN and infinity in the data."""

import copy
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import default_collate

from torchdoctor.evidence import replay
from torchdoctor.evidence.samples import all_samples, dataset_size, epoch_batches, leaves, train_loaders
from torchdoctor.findings import POOR_START, Defect, Evidence, Finding, NotLookedAt, Place
from torchdoctor.probe import Probe
from torchdoctor.running.subject import Subject

NON_FINITE_DATA = Defect(
    "non-finite-data",
    "critical",
    "One NaN reaches all weights at the next step.",
    explains=("non-finite", "unnormalized-input", *POOR_START),
    shown_by=Evidence("measured", "the values of an epoch of batches were checked"),
)

_SECONDS = 0.3
_SAMPLES, _TOGETHER = 500, 50


def finite_data(subject: Subject) -> Iterator[Finding | str | NotLookedAt]:
    """Looks for NaN and infinity in an epoch of training batches and in the first validation batches.

    Missing values may be marked by NaN and masked in the step: a batch counts only if its loss or a gradient of it is
    not finite either, or the step ends with an error.
    """
    batches = 0
    kinds = {"training": chain(subject.batches, _rest_of_epoch(subject)), "validation": subject.val_batches}
    for kind, batch in ((kind, batch) for kind, some in kinds.items() for batch in some):
        batches += 1
        path, leaf = next(((path, leaf) for path, leaf in leaves(batch).items() if not _is_finite(leaf)), ("", None))
        if leaf is not None and _spoils(subject, batch):
            number, what = int((~leaf.isfinite()).sum()), "NaN" if leaf.isnan().any() else "infinite"
            name = f" of leaf {path}" if path else ""
            message = (
                f"{number} of {leaf.numel()} values{name} are {what} in a {kind} batch, and so is a loss or gradient"
            )
            fix = "mean = np.nanmean(x_train, axis=0); x = np.where(np.isnan(x), mean, x)  # or drop those samples"
            yield Finding(NON_FINITE_DATA, _place(subject, leaf), message, fix)
            return
    yield (
        f"all values are finite in {batches} batches" if batches else NotLookedAt(NON_FINITE_DATA, "there is no batch")
    )


PROBE = Probe(look=finite_data, defects=(NON_FINITE_DATA,))


def _rest_of_epoch(subject: Subject) -> Iterator[Any]:
    """The rest of an epoch, unless the tensors that it is made of are finite, and only stacked."""
    for loader in train_loaders(subject):
        tensors = all_samples(loader.dataset)
        if tensors is None or loader.collate_fn is not default_collate or not all(map(_is_finite, tensors.values())):
            yield from epoch_batches(subject, _SECONDS)
            return


def _is_finite(leaf: Tensor) -> bool:
    return not leaf.is_floating_point() or bool(leaf.isfinite().all())


def _spoils(subject: Subject, batch: Any) -> bool:
    try:
        step = subject.backward(batch)
    except Exception:  # of any kind: the step cannot take the batch
        return True
    grads = [parameter.grad for parameter in subject.model.parameters() if parameter.grad is not None]
    return step.loss is not None and not all(map(_is_finite, [step.loss, *grads]))


def _place(subject: Subject, leaf: Tensor) -> Place | None:
    """Where such a value is first among the data, in a sample, or in a batch of samples without any."""
    wanted = np.isnan if bool(leaf.isnan().any()) else np.isinf

    def holds(array: np.ndarray, _: Any) -> bool:
        return array.dtype.kind == "f" and bool(wanted(array).any())

    for loader in train_loaders(subject)[:1]:
        numbers = range(min(dataset_size(loader.dataset) or 0, _SAMPLES))
        spoilt = next((number for number in numbers if _is_spoilt(loader.dataset[number])), 0)
        if (place := replay.first_line(subject, holds, spoilt)) is not None or loader.collate_fn is None:
            return place
        for start in numbers[::_TOGETHER]:
            samples = [loader.dataset[number] for number in numbers[start : start + _TOGETHER]]
            if _is_spoilt(loader.collate_fn(copy.deepcopy(samples))):
                return replay.first_line(subject, holds, run=partial(loader.collate_fn, samples))
    return None


def _is_spoilt(thing: Any) -> bool:
    return not all(map(_is_finite, leaves(thing).values()))
