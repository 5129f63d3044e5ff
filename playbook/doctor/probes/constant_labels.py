"""Labels that are all one class."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from playbook.doctor import blame, replay
from playbook.doctor.dependence import evaluated, mapped, predictions
from playbook.doctor.findings import LOADER, POOR_START, Defect, Finding, Place
from playbook.doctor.losses import Loss
from playbook.doctor.record import tensors
from playbook.doctor.samples import epoch, indices, leaves, size, train_loaders
from playbook.doctor.subject import Subject

CONSTANT_LABELS = Defect(
    "constant-labels",
    "warning",
    "The model learns to answer with one class.",
    explains=("input-independent", "train-not-shuffled", *POOR_START),
    shown_by=LOADER,
)
DEFECTS = (CONSTANT_LABELS,)

_SECONDS = 1.5
_ENOUGH = 1000  # labels of a shuffled loader that stand for all


def constant_labels(subject: Subject) -> Iterator[Finding | str]:
    """Counts the classes that reach each loss of the step, over an epoch if the first batches are of one class.

    One class must hold 98 % of at least 100 samples, or 99.5 % of two classes. Rare events, pixels and tokens are
    legitimately so uneven: there, or if the loss has weights, it must be every single one. Targets that the step makes
    itself, as a discriminator's ones or what the model itself answers, are no labels. A label may be a place in a set
    that the model cannot tell from other places, as it has no positions: there, one place is as good as any.
    """
    seen = _counted(subject, subject.batches)
    if seen and not any(_is_constant(loss, counts) for loss, counts in seen.values()):
        yield "labels of several classes reach the loss"
        return
    if not seen:
        return
    batches = list(epoch(subject, _SECONDS / 2))
    complete = len(batches) >= _length(subject) or sum(len(counts) for _, counts in seen.values()) >= _ENOUGH
    for loss, labels in _counted(subject, batches).values():
        if not complete or labels.numel() < 32 or not _is_constant(loss, labels):
            continue
        if _points_into_set(subject, loss.num_classes if loss.kind == "classes" else 0):
            continue
        share, value = _majority(labels)
        classes = loss.num_classes if loss.kind == "classes" else 2
        message = (
            f"{share:.1%} of {labels.numel()} labels of an epoch are {value:g}, and the model has {classes} classes"
        )
        fix = (
            "print(torch.bincount(labels))  # then correct what makes them: a threshold, a type or a division, perhaps"
        )
        each = loss.target.numel() // max(1, loss.target.shape[:1].numel())
        yield Finding(CONSTANT_LABELS, _place(subject, value, each) or loss.op.place, message, fix)
        return


def _length(subject: Subject) -> int:
    try:
        return max(len(loader) for loader in train_loaders(subject))
    except (TypeError, ValueError):
        return 0


def _counted(subject: Subject, batches: list[Any]) -> dict[int, tuple[Loss, Tensor]]:
    """The labels that each loss of the step gets, by the loss's number in the step."""
    found: dict[int, tuple[Loss, list[Tensor]]] = {}
    weights = {id(parameter) for parameter in subject.model.parameters()}
    for batch in batches[:200]:
        step = subject.record(batch)
        for number, loss in enumerate(step.losses):
            labels = _labels(loss)
            is_answer = not weights.isdisjoint(step.record.ancestors(loss.target))
            if labels is not None and step.is_from_data(loss.target) and not is_answer:
                found.setdefault(number, (loss, []))[1].append(labels)
    return {number: (loss, torch.cat(parts)) for number, (loss, parts) in found.items()}


def _labels(loss: Loss) -> Tensor | None:
    target = loss.target.detach()
    if loss.kind == "classes" and loss.prediction.dim() > 1 and loss.num_classes > 1:
        if target.is_floating_point():
            return target.argmax(dim=1).flatten()
        return target[target != loss.op.argument(4, "ignore_index", -100)].flatten()
    return target.flatten() if loss.kind == "binary" else None


def _majority(labels: Tensor) -> tuple[float, float]:
    values, counts = labels.unique(return_counts=True)
    return counts.max().item() / labels.numel(), values[counts.argmax()].item()


def _is_constant(loss: Loss, labels: Tensor) -> bool:
    if not labels.numel():
        return False
    share, _ = _majority(labels)
    dense = loss.prediction.dim() > 2 or loss.target.numel() != loss.target.shape[:1].numel()
    weighted = any(loss.op.kwargs.get(name) is not None for name in ("weight", "pos_weight"))
    if dense or weighted or labels.numel() < 100:
        return share == 1.0
    return share >= (0.98 if loss.kind == "classes" and loss.num_classes > 2 else 0.995)


def _points_into_set(subject: Subject, size: int) -> bool:
    """Whether the classes are the members of sets of this size: other orders of them give the scores in that order."""
    batch = subject.batches[0]
    if size < 2 or not any(leaf.dim() > 1 and leaf.shape[1] == size for leaf in tensors(batch)):
        return False
    order = torch.arange(size).roll(1)
    other = mapped(batch, lambda leaf: leaf[:, order] if leaf.dim() > 1 and leaf.shape[1] == size else leaf)
    pairs = zip(*[predictions(evaluated(subject, each, training=True)) for each in (batch, other)], strict=False)
    return any(
        one.shape == two.shape and torch.allclose(one[:, order], two, rtol=1e-3, atol=1e-4 * float(one.std()))
        for one, two in pairs
        if one.dim() > 1 and one.shape[1] == size
    )


def _has_others(loader: DataLoader, value: float) -> bool:
    """Whether the samples in their own order have labels other than this, in a part that the loader's have not."""
    chosen = [leaves(loader.dataset[number]).values() for number in indices(loader.dataset, 200)]
    labels = [[leaf.item() for leaf in sample if leaf.numel() == 1] for sample in chosen]
    return sum(value in sample for sample in labels) < 0.975 * len(labels)


def _place(subject: Subject, value: float, each: int) -> Place | None:
    """The sampler that leaves one class; else where so many equal numbers are made, or where those of a sample are."""
    for loader, places in blame.loaders(subject, "train"):
        if places and not isinstance(loader.sampler, RandomSampler | SequentialSampler) and _has_others(loader, value):
            return blame.option(places, "sampler")[0]
    number = max([size(loader.dataset) or 0 for loader in train_loaders(subject)], default=0)

    first: dict[tuple[str, int], Place] = {}  # by name and part of what is constant

    def see(place: Place, values: dict[str, Any]) -> bool:  # pragma: no cover - a tracer is not traced
        for name, given in values.items():
            for index, part in enumerate(replay.parts([given])):
                array = replay.array(part)
                if array is None or not max(32, number // 2) <= array.size < 10**6 or array.ndim > 2:
                    continue
                if float(np.mean(array == value)) >= 0.98:
                    first.setdefault((name, index), place)
                else:
                    first.pop((name, index), None)  # it was only being filled
        return False

    replay.lines(replay.remake(subject, None), see)
    place = next(iter(first.values()), None)
    datasets = [loader.dataset for loader in train_loaders(subject) if size(loader.dataset)]
    if place is not None or not datasets:
        return place
    sample = max(0, len(datasets[0]) - 1)  # type: ignore[arg-type]  # size() says that it has one
    run = partial(datasets[0].__getitem__, sample)

    def is_label(array: np.ndarray, _: Any) -> bool:
        return (array.size == each if each > 1 else array.ndim == 0) and bool((array == value).all())

    return replay.first_line(subject, is_label, run=run)
