"""Predictions that do not depend on the input."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from torchdoctor.evidence import origins
from torchdoctor.evidence.dependence import (
    distinguishable_batch,
    evaluation_step,
    map_tensors,
    predictions,
    relative_change,
    sample_outputs,
)
from torchdoctor.evidence.samples import train_loaders
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running.batches import num_samples
from torchdoctor.running.losses import SHAPE_ONLY
from torchdoctor.running.record import tensors
from torchdoctor.running.steps import Step
from torchdoctor.running.subject import Subject

INPUT_INDEPENDENT = Defect(
    "input-independent",
    "critical",
    "The model can learn the average and nothing else.",
    explains=("loss-not-decreasing", "vanishing-gradient"),
    shown_by=Evidence("experiment", "the samples of a batch changed places, and the predictions did not"),
)

_CLAMPS = ("relu", "relu_", "clamp", "clamp_", "hardtanh", "relu6")


def input_independent(subject: Subject, rounding: float = 1e-9, faded: float = 1e-6) -> Iterator[Finding | str]:
    """Rolls the samples of a batch, in evaluation mode and double precision: predictions must follow.

    Reported is what is unchanged but for rounding (1e-9), if a call cuts it off: takes more of a change (1e-6) and
    gives less, or leads nowhere. A signal that fades from layer to layer is another defect. What the losses get must be
    unchanged as well, in each of several steps: a generator that starts from noise, and has its turn alone, is fine.

    Args:
        subject: the training that has just begun.
        rounding: relative change that counts as none.
        faded: least change of what a call takes that cuts it off.
    """
    batch = distinguishable_batch(subject.batches[0])
    size = num_samples(batch) if batch is not None else None
    if size is None or size < 2 or not subject.accepts(batch):
        return
    rolled = map_tensors(batch, lambda leaf: leaf.roll(1, 0))
    is_same = all(torch.equal(a, b) for a, b in zip(tensors(batch), tensors(rolled), strict=True))
    if is_same or not subject.accepts(rolled):  # some want the longest sample first
        return
    with torch.no_grad():
        for weight in subject.model.parameters():
            if weight.requires_grad:  # branches that begin at zero let nothing through yet
                weight.add_(0.01 * torch.randn_like(weight))
    _measure_statistics(subject, batch)
    runs: list[tuple[Step, Step]] = []
    for index in range(len(subject.batches)):  # networks may take turns
        before, after = _two_runs(subject, batch, rolled, index)
        pairs = list(zip(predictions(before), predictions(after), strict=False))
        pairs += list(zip(sample_outputs(before, size), sample_outputs(after, size), strict=False))[
            -1 if pairs else None :
        ]
        if not pairs:
            return
        if not all(_is_same(a, b, rounding) for a, b in pairs) or _is_clamped(before, after, rounding):
            yield "predictions depend on the input"
            return
        runs.append((before, after))
    place, fades = _cutting_call(*runs[0], size, rounding, faded)
    if fades:
        yield "the input fades before it comes to the predictions"
        return
    if _is_constant(runs[0][0], size):
        loaders = train_loaders(subject)
        if not loaders:  # a memory that begins with one sample
            return
        creations = (origins.dataset_line(subject, loader.dataset) for loader in loaders)
        place = next((line for line, _ in filter(None, creations)), None)
        message = f"the {size} samples of a batch differ in their targets, and not in what the model gets"
        yield Finding(INPUT_INDEPENDENT, place, message, "# give the model what tells samples apart")
        return
    message = f"the predictions of {size} samples stay exactly the same when the samples change places"
    yield Finding(INPUT_INDEPENDENT, place, message, "# let the prediction take what comes from the input")


PROBE = Probe(look=input_independent, defects=(INPUT_INDEPENDENT,), needs=(Need.BATCHES, Need.FEWER_SAMPLES))


def _is_clamped(before: Step, after: Step, rounding: float) -> bool:
    """Whether predictions are a constant that a last ReLU or clamp makes, for now, of what depends on the input."""
    makers = [[step.record.producer(each, SHAPE_ONLY) for each in predictions(step)] for step in (before, after)]
    pairs = [(one, two) for one, two in zip(*makers, strict=False) if one is not None and two is not None]
    return any(one.name in _CLAMPS and not _is_same(one.inputs[0], two.inputs[0], rounding) for one, two in pairs)


def _measure_statistics(subject: Subject, batch: Any) -> None:
    """Gives norms the statistics of a batch: those that they begin with may leave no unit above zero."""
    norms = [part for part in subject.model.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = 1.0
    if norms:
        with subject.not_optimized():
            subject.train(batch)


def _is_constant(step: Step, size: int) -> bool:
    """Whether all samples have the same in those tensors of the batch that the predictions are computed from."""
    kin = set().union(*map(step.record.ancestors, [*predictions(step), *sample_outputs(step, size)]))
    inputs = [leaf for leaf in tensors(step.batch) if id(leaf) in kin]
    return bool(inputs) and all(torch.equal(leaf, leaf.roll(1, 0)) for leaf in inputs)


def _two_runs(subject: Subject, batch: Any, rolled: Any, index: int) -> tuple[Step, Step]:
    try:
        subject.model.double()
        wide = [
            map_tensors(b, lambda leaf: leaf.double() if leaf.is_floating_point() else leaf) for b in (batch, rolled)
        ]
        return evaluation_step(subject, wide[0], True, index), evaluation_step(subject, wide[1], True, index)
    except (RuntimeError, TypeError, ValueError):  # the code insists on its own precision
        subject.model.float()
        return evaluation_step(subject, batch, True, index), evaluation_step(subject, rolled, True, index)


def _is_same(one: Tensor, other: Tensor, rounding: float) -> bool:
    if one.shape != other.shape or one.dtype != torch.float64:
        return torch.equal(one, other)
    return torch.equal(one, other) or bool((one - other).abs().max() <= rounding * one.abs().max())


def _cutting_call(before: Step, after: Step, size: int, rounding: float, faded: float) -> tuple[Place | None, bool]:
    """The last call that takes something which depends on the input, and whether some of that is left in its result.

    If a prediction is made by no such call: the last one before the predictions.
    """
    cut, earlier, reached = None, None, False
    ends = [*predictions(before), *sample_outputs(before, size)]
    kin = set().union(*map(before.record.ancestors, ends))
    for one, other in zip(before.record.ops, after.record.ops, strict=False):
        if one.name != other.name:
            break
        reached = reached or any(tensor is end for tensor in one.inputs for end in ends)
        if one.place and _changed_tensors(one.inputs, other.inputs) > faded:
            if any(id(out) in kin for out in one.outputs):
                cut = one.place, _changed_tensors(one.outputs, other.outputs) > rounding
            earlier = earlier if reached else (one.place, False)
    return cut or earlier or (None, False)


def _changed_tensors(ones: list[Tensor], others: list[Tensor]) -> float:
    pairs = [pair for pair in zip(ones, others, strict=False) if pair[0].numel()]
    return max((relative_change(a, b).max().item() if a.shape == b.shape else math.inf for a, b in pairs), default=0.0)
