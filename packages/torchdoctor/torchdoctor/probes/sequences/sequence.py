"""Sequence models that see the element that they predict, or whose targets are not shifted."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from torchdoctor.evidence import origins, replay
from torchdoctor.evidence.dependence import first_violation, relative_change
from torchdoctor.evidence.samples import dataset_size, leaves, target_paths, train_loaders
from torchdoctor.evidence.tokens import target_shift
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.losses import Loss
from torchdoctor.running.record import Op, Record, tensors
from torchdoctor.running.steps import Step
from torchdoctor.running.subject import Subject

CAUSAL_LEAK = Defect(
    "causal-leak",
    "critical",
    "The model reads the tokens it is to predict: a low loss, and useless generation.",
    shown_by=Evidence("experiment", "later tokens were changed, and the earlier predictions were compared"),
)
UNSHIFTED_TARGETS = Defect(
    "unshifted-targets",
    "critical",
    "The model learns to copy its input instead of predicting what comes next.",
    shown_by=Evidence("experiment", "later tokens were changed, and inputs were compared with targets"),
)


def sequence(subject: Subject, least_change: float = 1e-5) -> Iterator[Finding | str]:
    """Compares each loss's target with what the model reads, then changes the second half of what it reads.

    A target that is the input one step later makes the model autoregressive: its first half must not change. A target
    that is the input itself is a mistake if the model is causal, so that it cannot be an autoencoder, and sees it: if
    it reads tokens, or the first half of its numbers reaches the second of its results. Masked language models match
    neither, nor do models that hide each position from its own result.

    Args:
        subject: the training that has just begun.
        least_change: before a change of the future; clean programs: exactly 0, defective: 0.08 and up.
    """
    with subject.evaluating(), torch.enable_grad():
        step = subject.record(subject.batches[0])
    if step.error is not None:  # detectors have no loss in evaluation mode
        return
    for loss, call, read in _pairs(step):
        axis, later_by = target_shift(read, loss)
        if later_by is None:
            continue
        half = read.shape[axis] // 2
        changes, records = _perturbed(subject, call, read, axis, later=True)
        if not changes:
            continue
        leak = max(part[:half].max().item() for part in changes)
        if later_by == 1 and leak > least_change:
            message = f"changing the second half of the input changes predictions in the first half by {leak:.2g}"
            fix = "mask = nn.Transformer.generate_square_subsequent_mask(T, device=x.device)  # is_causal=True"
            yield Finding(CAUSAL_LEAK, _leak_line(subject, records, half, read.shape[axis], least_change), message, fix)
        elif later_by == 1:
            yield "predictions of the next element do not depend on later ones"
        elif leak <= least_change and any(part[half].max() > least_change for part in changes):
            earlier = [] if not read.is_floating_point() else _perturbed(subject, call, read, axis, later=False)[0]
            if not read.is_floating_point() or any(part[half:].max() > least_change for part in earlier):
                message = "the target at each position is the input at that position, and the model is causal"
                fix = "loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())"
                yield Finding(UNSHIFTED_TARGETS, _target_line(subject, loss) or loss.op.place, message, fix)
        return


PROBE = Probe(look=sequence, defects=(CAUSAL_LEAK, UNSHIFTED_TARGETS), is_light=True)


Call = tuple[nn.Module, tuple[Any, Any], list[int]]  # a module with weights, its arguments, and which results count


def _pairs(step: Step) -> Iterator[tuple[Loss, Call, Tensor]]:
    """Each loss with each sequence that a module reads."""
    for loss in step.losses:
        for module, arguments, result in step.record.calls:
            results = tensors(result)  # beside the scores, maps of attention have a dimension of time as well
            known = {id(leaf) for leaf in results}
            before = step.record.ancestors(loss.prediction, lambda _, output, known=known: id(output) not in known)
            lead = [number for number, leaf in enumerate(results) if id(leaf) in before]
            for read in tensors(arguments):
                if read.dim() > 1 and next(nn.Module.parameters(module), None) is not None:
                    yield loss, (module, arguments, lead), read


def _target_line(subject: Subject, loss: Loss) -> Place | None:
    """Where a sample's target is made, if the data has what is read and the target as two things."""
    paths = target_paths(loss, subject.batches[0])
    loaders = [loader for loader in train_loaders(subject) if dataset_size(loader.dataset)]
    if len(paths) < 2 or not loaders:
        return None
    target = leaves(loaders[0].dataset[0]).get(paths[-1], torch.empty(0)).numpy()
    return replay.first_line(subject, lambda array, _: array.size > 0 and np.array_equal(array, target))


def _perturbed(subject: Subject, call: Call, read: Tensor, axis: int, later: bool) -> tuple[list[Tensor], list[Record]]:
    """How results (T, …) of a module change if the later or earlier half of what it reads is that of other samples."""
    (module, arguments, lead), length = call, read.shape[axis]
    mixed = read.roll(1, 0)
    if torch.equal(mixed, read):
        mixed = read.flip(axis)
    halves = (read, mixed) if later else (mixed, read)
    other = torch.cat(
        [halves[0].narrow(axis, 0, length // 2), halves[1].narrow(axis, length // 2, length - length // 2)], axis
    )
    changed = pytree.tree_map(lambda item: other if item is read else item, arguments)
    results, records = [], []
    with subject.evaluating():
        for args, kwargs in (arguments, changed):
            torch.manual_seed(0)
            with Record() as record:
                outputs = tensors(module(*args, **kwargs))
            results.append([outputs[number] for number in lead] or outputs)
            records.append(record)
    pairs = zip(*results, strict=True)
    return [part for one, two in pairs for part in _change_over_time(one, two, len(read), length, axis)], records


def _change_over_time(before: Tensor, after: Tensor, num: int, length: int, axis: int) -> Iterator[Tensor]:
    """The change of a result (T, …) that has the dimension of time, perhaps in one with that of samples.

    In one they are in either order, B · T or T · B; it is the one in which earlier results change less, as it is where
    there are as many classes as elements.
    """
    if axis == 1 and all(leaf.dim() > 1 and len(leaf) == num * length for leaf in (before, after)):  # for the loss
        by_sample = [leaf.unflatten(0, (num, length)) for leaf in (before, after)]
        by_time = [leaf.unflatten(0, (length, num)).transpose(0, 1) for leaf in (before, after)]
        before, after = min(by_sample, by_time, key=lambda pair: relative_change(*pair)[:, : length // 2].max().item())
    lengths = (length, length - 1)  # the module may cut the last element itself
    times = [dim for dim in (1, -1) if before.dim() > 1 and before.shape[dim] in lengths]
    if times and before.shape == after.shape and len(before) == num and before.is_floating_point():
        changed = relative_change(before, after)
        yield min((changed.movedim(dim, 0) for dim in times), key=lambda part: part[: length // 2].max().item())


def _leak_line(subject: Subject, records: list[Record], half: int, length: int, least_change: float) -> Place | None:
    """The first call that lets the future in, or the layer if it is a convolution: its padding does."""
    leaking = first_violation(*records, breaks=lambda one, other: _leaks_future(one, other, half, length, least_change))
    place = leaking and leaking.place
    layers = [op.module for op in records[0].ops if op.place == place and op.name.startswith("conv") and op.module]
    return (origins.layer(subject.model, layers[0]) if layers else None) or place


def _leaks_future(one: Op, other: Op, half: int, length: int, least_change: float) -> bool:
    """Whether a change of the second half stands, in a result, in the first half of every dimension of time."""
    for before, after in zip(one.outputs[:1], other.outputs[:1], strict=False):
        if before.shape != after.shape or not before.is_floating_point():
            continue
        changed = relative_change(before, after) > least_change
        dims = [dim for dim, size in enumerate(before.shape) if size == length]
        if dims and all(changed.narrow(dim, 0, half).any() for dim in dims):
            return True
    return False
