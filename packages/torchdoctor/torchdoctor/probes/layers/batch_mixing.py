"""Samples that influence each other's results."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import RandomSampler

from torchdoctor.evidence import origins
from torchdoctor.evidence.dependence import (
    DUPLICATE,
    NOT_NUMBERS,
    are_all_nan,
    distinguishable_batch,
    evaluation_step,
    first_violation,
    module_outputs,
    predictions,
    relative_change,
    sample_outputs,
    with_duplicate,
)
from torchdoctor.findings import Defect, Evidence, Finding, NotLookedAt, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running.batches import first_samples, num_samples
from torchdoctor.running.record import Op
from torchdoctor.running.steps import Step
from torchdoctor.running.subject import Subject

BATCH_MIXING = Defect(
    "batch-mixing",
    "critical",
    "A sample's result depends on its neighbours: metrics are wrong, serving is random.",
    explains=("crash", "misordered-targets"),
    shown_by=Evidence("experiment", "one sample was replaced, and the results of the others were compared"),
)
_REDUCTIONS = ("mean", "sum", "std", "var", "norm", "max", "min", "amax", "amin", "logsumexp", "prod", "median")
_LEAST = 3  # samples


def batch_mixing(subject: Subject, least_change: float = 2e-5) -> Iterator[Finding | str | NotLookedAt]:
    """Replaces sample 1 by sample 0 in evaluation mode and compares the results of all other samples.

    Similarities between all pairs (B, B) are a result of two samples each: there, column 1 may change too. Samples that
    are sorted, as by length, only change places; then some sample can take that place without moving the others, so
    each is tried. Batches whose tensors do not share their first dimension (graphs) are not looked at. A batch that a
    network reads as one sequence is one by design, unless its samples come in random order. Where no result has the
    samples first, as in (T, B, C), they are along the one dimension whose length follows the number of samples.

    Args:
        subject: the training that has just begun.
        least_change: share of the output's scale; clean programs: exactly 0, defective: 0.03 and up, LSTMs 1e-4.
    """
    batch = distinguishable_batch((subject.val_batches if subject.validates else subject.batches)[0])
    size = _size(subject, batch, training=not subject.validates)
    if not size:
        yield NotLookedAt(BATCH_MIXING, "the tensors of a batch do not share their first dimension, or it is too short")
        return
    before, after = evaluation_step(subject, batch), evaluation_step(subject, with_duplicate(batch))
    axes = _sample_axes(subject, batch, size, before)
    worst = _change_of_others(_pairs(before, after, size, axes), size)
    is_random = any(isinstance(loader.sampler, RandomSampler) for loader in subject.loaders("train"))
    if worst is None and is_random:
        batches = (
            (each, _size(subject, each, training=True)) for each in (distinguishable_batch(subject.batches[0]), batch)
        )
        batch, size = next((pair for pair in batches if pair[1]), (None, 0))
        if size:
            before, after = (evaluation_step(subject, each, training=True) for each in (batch, with_duplicate(batch)))
            compared = [[leaf for leaf in predictions(step) if leaf.shape[:1] == (size,)] for step in (before, after)]
            worst = _change_of_others(list(zip(*compared, strict=False)), size)
    if worst is None or are_all_nan(module_outputs(before)):
        reason = NOT_NUMBERS if worst is not None else "no dimension of a result is that of the samples"
        yield NotLookedAt(BATCH_MIXING, reason)
        return
    others = (evaluation_step(subject, with_duplicate(batch, source)) for source in range(size) if source != DUPLICATE)
    if worst <= least_change or any(_changes_one(before, other, size, axes, least_change) for other in others):
        yield f"samples of a batch do not change each other's results ({size} samples)"
        return
    if axes is not None and not is_random:
        yield NotLookedAt(BATCH_MIXING, "a batch is read as one sequence, whose samples come in their own order")
        return
    mixing = first_violation(before.record, after.record, lambda one, other: _mixes(one, other, size, least_change))
    place = _norm(subject) or (mixing and mixing.place)
    message = f"another sample 1 changes the results of the samples beside it by {worst:.2g} of their mean size"
    fix = "x.transpose(0, 1)  # or permute, softmax(dim=-1): keep samples apart"
    if mixing is not None and mixing.name in _REDUCTIONS:
        fix = f"x.{mixing.name}(dim=-1, keepdim=True)  # of each sample, and not over all"
    yield Finding(BATCH_MIXING, place, message, fix)


PROBE = Probe(
    look=batch_mixing,
    defects=(BATCH_MIXING,),
    needs=(Need.BATCHES, Need.SAMPLES, Need.VAL_SAMPLES, Need.FEWER_SAMPLES),
    is_light=True,
)


def _size(subject: Subject, batch: Any, training: bool) -> int:
    """The number of samples, if there are enough and a step takes them; else 0."""
    size = num_samples(batch) if batch is not None else None
    return size if size is not None and size >= _LEAST and subject.accepts(batch, training) else 0


def _sample_axes(subject: Subject, batch: Any, size: int, step: Step) -> list[int] | None:
    """The dimension of the samples in each result, −1 if that is unknown; None where one has them first."""
    outputs = module_outputs(step)
    smaller = first_samples(batch, size - 1) if size > _LEAST else None
    if sample_outputs(step, size) or smaller is None or not subject.accepts(smaller, not subject.validates):
        return None
    axes = []
    pairs = zip(outputs, module_outputs(evaluation_step(subject, smaller)), strict=False)
    for one, other in pairs:
        sizes = list(zip(one.shape, other.shape, strict=False))
        changed = [axis for axis, lengths in enumerate(sizes) if lengths[0] != lengths[1]]
        is_told = one.dim() == other.dim() and len(changed) == 1 and sizes[changed[0]] == (size, size - 1)
        axes.append(changed[0] if is_told else -1)
    return axes


def _norm(subject: Subject) -> Place | None:
    """Where a BatchNorm is made that takes the statistics of the batch in evaluation as well."""
    for part in subject.model.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is None:
            return origins.layer(subject.model, part)
    return None


def _changes_one(before: Step, after: Step, size: int, axes: list[int] | None, least_change: float) -> bool:
    """Whether a change of one sample is seen in one row of each result, wherever that is."""
    pairs = _pairs(before, after, size, axes)
    rows = [relative_change(a, b).flatten(1).amax(1) > least_change for a, b in pairs if a[0].numel()]
    return any(map(torch.any, rows)) and all(row.sum() <= 1 for row in rows)


def _change_of_others(pairs: list[tuple[Tensor, Tensor]], size: int) -> float | None:
    """The largest change in a result of another sample; None without results."""
    return max((_change(a, b, size) for a, b in pairs), default=None)


def _pairs(before: Step, after: Step, size: int, axes: list[int] | None) -> list[tuple[Tensor, Tensor]]:
    """The results of both steps, a row a sample."""
    if axes is None:
        pairs = zip(sample_outputs(before, size), sample_outputs(after, size), strict=False)
        return [(a, b) for a, b in pairs if a.shape == b.shape]
    moved = zip(module_outputs(before), module_outputs(after), axes, strict=False)
    return [(a.movedim(axis, 0), b.movedim(axis, 0)) for a, b, axis in moved if axis >= 0 and a.shape == b.shape]


def _change(before: Tensor, after: Tensor, size: int) -> float:
    changed = relative_change(before, after)
    others = [row for row in range(size) if row != DUPLICATE]
    changed = changed[others]
    if before.shape[1:2] == (size,):  # perhaps similarities of pairs
        changed = changed[:, others]
    return changed.max().item() if changed.numel() else 0.0


def _mixes(one: Op, other: Op, size: int, least_change: float) -> bool:
    """Whether a change of one sample stands, in a result, elsewhere than in that sample's part of some dimension."""
    for before, after in zip(one.outputs, other.outputs, strict=False):
        if before.shape != after.shape or not before.is_floating_point():
            continue
        changed = relative_change(before, after) > least_change
        dims = [dim for dim, length in enumerate(before.shape) if length % size == 0 and length]
        if dims and changed.any() and not any(_is_confined(changed, dim, size) for dim in dims):
            return True
    return False


def _is_confined(changed: Tensor, dim: int, size: int) -> bool:
    others = [axis for axis in range(changed.dim()) if axis != dim]
    indices = (changed.any(dim=others) if others else changed).nonzero().flatten()
    times = changed.shape[dim] // size
    return bool((indices // times == DUPLICATE).all() or (indices % size == DUPLICATE).all())
