"""Labels of a single class."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import RandomSampler, SequentialSampler

from torchdoctor.evidence import origins, replay
from torchdoctor.evidence.arrays import as_array, nested_values
from torchdoctor.evidence.dependence import evaluation_step, map_tensors, predictions
from torchdoctor.evidence.samples import dataset_size, epoch_batches, leaves, spread_indices, train_loaders
from torchdoctor.findings import LOADER, POOR_START, Defect, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.losses import Loss
from torchdoctor.running.record import tensors
from torchdoctor.running.steps import Step
from torchdoctor.running.subject import Subject

CONSTANT_LABELS = Defect(
    "constant-labels",
    "warning",
    "The model learns to answer with one class.",
    explains=("input-independent", "train-not-shuffled", *POOR_START),
    shown_by=LOADER,
)

_SECONDS = 0.75
_ENOUGH, _FEWEST = 1000, 32  # labels of a shuffled loader that stand for all; that tell anything
_BATCHES = 200
_WRITES = ("__setitem__", "fill_", "masked_fill", "masked_fill_", "index_fill_", "zero_")


def constant_labels(subject: Subject, share: float = 0.98, share_of_two: float = 0.995) -> Iterator[Finding | str]:
    """Counts the classes that reach each loss of the step, over an epoch if the first batches are of one class.

    One class must hold 98 % of at least 100 samples, or 99.5 % of two classes. Rare events, pixels and tokens are
    legitimately so uneven: there, or if the loss has weights, it must be every single one. Targets that the step makes
    itself, as a discriminator's ones or what the model itself answers, are no labels. Nor are places of the right one
    among candidates, which the step writes into labels that the model gets as well. A label may be a place in a set
    that the model cannot tell from other places, as it has no positions: there, one place is as good as any.

    Args:
        subject: the training that has just begun.
        share: of the labels that are of one class, among three classes or more.
        share_of_two: the same among two classes.
    """
    first = _labels_of_losses(subject, [subject.attempt(number) for number in range(len(subject.batches))])
    if first and not any(_is_constant(loss, labels, share, share_of_two) for loss, labels in first):
        yield "labels of several classes reach the loss"
    elif first:
        batches = list(epoch_batches(subject, _SECONDS))
        is_complete = len(batches) >= subject.trainer.num_training_batches
        for loss, labels in _labels_of_losses(subject, map(subject.record, batches[:_BATCHES])):
            least = _FEWEST if is_complete else _ENOUGH
            if len(labels) < least or not _is_constant(loss, labels, share, share_of_two):
                continue
            num_classes = loss.num_classes if loss.kind == "classes" else 2
            if not _points_into_set(subject, num_classes):
                yield _finding(subject, loss, labels, num_classes, share)
                return


PROBE = Probe(look=constant_labels, defects=(CONSTANT_LABELS,))


def _finding(subject: Subject, loss: Loss, labels: Tensor, num_classes: int, share: float) -> Finding:
    part, value = _majority(labels)
    message = f"{part:.1%} of {len(labels)} labels of an epoch are {value:g}, and the model has {num_classes} classes"
    fix = "print(torch.bincount(labels))  # then correct what makes them: a threshold, a type or a division, perhaps"
    each = loss.target.numel() // max(1, loss.target.shape[:1].numel())
    place = _sampler(subject, value, share) or _filling_line(subject, value, share) or _label_line(subject, value, each)
    return Finding(CONSTANT_LABELS, place or loss.op.place, message, fix)


def _labels_of_losses(subject: Subject, steps: Iterable[Step]) -> list[tuple[Loss, Tensor]]:
    """The losses that get labels from the data, each with those of all steps, and of all that the same weights answer.

    A step may ask one network about samples of each class in turn, as that which tells domains apart.
    """
    labels_by_key: dict[Any, tuple[Loss, list[Tensor]]] = {}
    weights = {id(parameter) for parameter in subject.model.parameters()}
    for step in steps:
        for loss in step.losses:
            labels = _labels(loss)
            is_answer = not weights.isdisjoint(step.record.ancestors(loss.target))
            if labels is not None and step.is_from_data(loss.target) and not is_answer and not _is_place(step, loss):
                asked = loss.kind, frozenset(weights & step.record.ancestors(loss.prediction))
                labels_by_key.setdefault(asked, (loss, []))[1].append(labels)
    return [(loss, torch.cat(labels)) for loss, labels in labels_by_key.values()]


def _is_place(step: Step, loss: Loss) -> bool:
    """Whether a step writes constants into targets that come from what the prediction comes from as well."""
    kin = step.record.ancestors(loss.target)
    is_written = any(id(leaf) in kin for op in step.record.named(*_WRITES) for leaf in (*op.outputs, *op.inputs[:1]))
    return is_written and step.sources(loss.target) <= step.sources(loss.prediction)


def _labels(loss: Loss) -> Tensor | None:
    target = loss.target.detach()
    if loss.kind == "classes" and loss.prediction.dim() > 1 and loss.num_classes > 1:
        return (target.argmax(dim=1) if target.is_floating_point() else loss.not_ignored(target)).flatten()
    return target.flatten() if loss.kind == "binary" else None


def _majority(labels: Tensor) -> tuple[float, float]:
    values, counts = labels.unique(return_counts=True)
    return counts.max().item() / labels.numel(), values[counts.argmax()].item()


def _is_constant(loss: Loss, labels: Tensor, share: float, share_of_two: float) -> bool:
    if not labels.numel():
        return False
    is_dense = loss.prediction.dim() > 2 or loss.target.numel() != loss.target.shape[:1].numel()
    is_weighted = any(loss.op.kwargs.get(name) is not None for name in ("weight", "pos_weight"))
    if is_dense or is_weighted or labels.numel() < 100:
        return _majority(labels)[0] == 1.0
    return _majority(labels)[0] >= (share if loss.kind == "classes" and loss.num_classes > 2 else share_of_two)


def _points_into_set(subject: Subject, size: int) -> bool:
    """Whether the classes are the members of sets of this size: other orders of them give the scores in that order."""
    batch = subject.batches[0]
    if not any(leaf.dim() > 1 and leaf.shape[1] == size for leaf in tensors(batch)):
        return False
    order = torch.arange(size).roll(1)
    other = map_tensors(batch, lambda leaf: leaf[:, order] if leaf.dim() > 1 and leaf.shape[1] == size else leaf)
    pairs = zip(*[predictions(evaluation_step(subject, each, training=True)) for each in (batch, other)], strict=False)
    return any(
        one.shape == two.shape and torch.allclose(one[:, order], two, rtol=1e-3, atol=1e-4 * float(one.std()))
        for one, two in pairs
        if one.dim() > 1 and one.shape[1] == size
    )


def _sampler(subject: Subject, value: float, share: float) -> Place | None:
    """Where a loader gets the sampler that leaves one class of several."""
    for loader, places in origins.loaders(subject, "train"):
        if isinstance(loader.sampler, RandomSampler | SequentialSampler):
            continue
        samples = [leaves(loader.dataset[number]).values() for number in spread_indices(loader.dataset, _BATCHES)]
        is_of_class = [any(leaf.numel() == 1 and leaf.item() == value for leaf in sample) for sample in samples]
        if sum(is_of_class) < share * len(samples):
            return origins.option(places, "sampler")[0]
    return None


def _filling_line(subject: Subject, value: float, share: float) -> Place | None:
    """The line that makes so many equal numbers, and no array that is filled later."""
    number = max([dataset_size(loader.dataset) or 0 for loader in train_loaders(subject)], default=0)
    places: dict[tuple[str, int], Place] = {}  # by name and part of what is constant

    def see(place: Place, values: dict[str, Any]) -> bool:  # pragma: no cover - a tracer is not traced
        for name, entry in values.items():
            for index, part in enumerate(nested_values([entry])):
                numbers = as_array(part)
                if numbers is None or not max(_FEWEST, number // 2) <= numbers.size < 10**6 or numbers.ndim > 2:
                    continue
                if (numbers == value).mean() >= share:
                    places.setdefault((name, index), place)
                else:
                    places.pop((name, index), None)
        return False

    replay.trace_lines(replay.rebuild_data(subject, None), see)
    return next(iter(places.values()), None)


def _label_line(subject: Subject, value: float, each: int) -> Place | None:
    """The line that makes the labels of the last sample."""
    for loader in train_loaders(subject):
        if number := dataset_size(loader.dataset):
            run = partial(loader.dataset.__getitem__, number - 1)
            return replay.first_line(subject, lambda a, _: a.size == each and bool((a == value).all()), run=run)
    return None
