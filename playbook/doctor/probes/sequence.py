"""Models that predict the next element of a sequence: do they see it, and is it the next."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from playbook.doctor import blame, replay
from playbook.doctor.dependence import change, first_where
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.losses import Loss
from playbook.doctor.record import Op, Record, tensors
from playbook.doctor.samples import copies, leaves, size, train_loaders
from playbook.doctor.subject import Subject

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
DEFECTS = (CAUSAL_LEAK, UNSHIFTED_TARGETS)
LIGHT = True
_MATCH = 0.99  # share of positions at which target and input are the same
_LEAK = 1e-5  # change before a change of the future; clean: exactly 0, defective: 0.08 and up


def sequence(subject: Subject) -> Iterator[Finding | str]:
    """Compares each loss's target with what the model reads, then changes the second half of what it reads.

    A target that is the input one step later makes the model autoregressive: its first half must not change. A target
    that is the input itself is a mistake if the model is causal, so that it cannot be an autoencoder, and sees it: if
    it reads tokens, or the first half of its numbers reaches the second of its results. Masked language models match
    neither, nor do models that hide each position from its own result.
    """
    with subject.evaluating(), torch.enable_grad():
        step = subject.record(subject.batches[0])
    if step.error is not None:  # detectors have no loss in evaluation mode
        return
    for loss in step.losses:
        for module, arguments, _ in step.record.calls:
            for read in tensors(arguments):
                if read.dim() < 2 or next(nn.Module.parameters(module), None) is None:
                    continue
                axis, shift = _shift(read, loss)
                if shift is None:
                    continue
                leak, place = _leak(subject, module, arguments, read, axis)
                if leak is None:
                    continue
                if shift == 1 and leak > _LEAK:
                    message = (
                        f"changing the second half of the input changes predictions in the first half by {leak:.2g}"
                    )
                    fix = "mask = nn.Transformer.generate_square_subsequent_mask(T, device=x.device)  # is_causal=True"
                    yield Finding(CAUSAL_LEAK, place, message, fix)
                elif shift == 0 and leak <= _LEAK and _copies(subject, module, arguments, read, axis):
                    message = "the target at each position is the input at that position, and the model is causal"
                    fix = "loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())"
                    yield Finding(UNSHIFTED_TARGETS, _made_twice(subject, loss) or loss.op.place, message, fix)
                elif shift == 1:
                    yield "predictions of the next element do not depend on later ones"
                return


def _made_twice(subject: Subject, loss: Loss) -> Place | None:
    """Where a sample's target is made, if the data has what is read and the target as two things."""
    paths = copies(loss, subject.batches[0])
    loaders = [loader for loader in train_loaders(subject) if size(loader.dataset)]
    if len(paths) < 2 or not loaders:
        return None
    target = leaves(loaders[0].dataset[0]).get(paths[-1], torch.empty(0)).numpy()
    return replay.first_line(subject, lambda array, _: array.size > 0 and np.array_equal(array, target))


def _shift(read: Tensor, loss: Loss) -> tuple[int, int | None]:
    """The dimension of time, and 0 if the target is what is read, 1 if it is that one step later, otherwise nothing."""
    ignored = loss.op.argument(4, "ignore_index", -100) if loss.kind == "classes" else None
    for axis in (1, -1) if read.dim() > 2 else (1,):
        ours = read.movedim(axis, 1)
        num, length, *rest = ours.shape
        if length < 4 or loss.target.is_floating_point() != read.is_floating_point():
            continue
        for steps in (length, length - 1):
            shape = [num, *rest, steps] if axis == -1 else [num, steps, *rest]
            if loss.target.numel() != math.prod(shape):
                continue
            wanted = loss.target.reshape(shape).movedim(axis, 1)
            if steps == length and _same(wanted, ours, ignored):
                return axis, 0
            if _same(wanted[:, : length - 1], ours[:, 1:], ignored):
                return axis, 1
    return 1, None


def _same(wanted: Tensor, read: Tensor, ignored: int | None) -> bool:
    counted = torch.ones_like(wanted, dtype=torch.bool) if ignored is None else wanted != ignored
    if not counted.any() or (read[0] == read[0, :1]).all():
        return False
    return (wanted == read)[counted].double().mean().item() > _MATCH


def _leak(
    subject: Subject, module: nn.Module, arguments: tuple, read: Tensor, axis: int
) -> tuple[float | None, Place | None]:
    """The change of a module's results in the first half of the time that it reads, and the call that lets it in."""
    length = read.shape[axis]
    half = length // 2
    results, records = _with_others(subject, module, arguments, read, axis, later=True)
    worst = max((part.narrow(time, 0, half).max().item() for part, time in _changes(results, read, axis)), default=None)
    place = first_where(*records, breaks=lambda one, two: _lets_in(one, two, half, length))
    for op in records[0].ops:
        if op.place == place and op.name.startswith("conv") and op.module is not None:
            return worst, blame.layer(subject.model, op.module) or place  # its padding lets it in
    return worst, place


def _copies(subject: Subject, module: nn.Module, arguments: tuple, read: Tensor, axis: int) -> bool:
    """Whether results take what is read at their own position, and numbers in the first half reach the second."""
    half = read.shape[axis] // 2

    def reached(later: bool, start: int, end: int | None) -> bool:
        results, _ = _with_others(subject, module, arguments, read, axis, later)
        changes = _changes(results, read, axis)
        return any(part.movedim(time, 0)[start:end].max().item() > _LEAK for part, time in changes)

    return reached(True, half, half + 1) and (not read.is_floating_point() or reached(False, half, None))


def _with_others(
    subject: Subject, module: nn.Module, arguments: tuple, read: Tensor, axis: int, later: bool
) -> tuple[list[list[Tensor]], list[Record]]:
    """What a module makes of what it reads, and of the same with the later or earlier half of other samples."""
    half, length = read.shape[axis] // 2, read.shape[axis]
    mixed = read.roll(1, 0)
    if torch.equal(mixed, read):
        mixed = read.flip(axis)
    halves = (read, mixed) if later else (mixed, read)
    other = torch.cat([halves[0].narrow(axis, 0, half), halves[1].narrow(axis, half, length - half)], dim=axis)
    args, kwargs = arguments
    changed_args = [other if item is read else item for item in args]
    changed_kwargs = {name: other if item is read else item for name, item in kwargs.items()}
    results, records = [], []
    with subject.evaluating():
        for one_args, one_kwargs in ((args, kwargs), (changed_args, changed_kwargs)):
            torch.manual_seed(0)
            with Record() as record:
                results.append(tensors(module(*one_args, **one_kwargs)))
            records.append(record)
    return results, records


def _changes(results: list[list[Tensor]], read: Tensor, axis: int) -> Iterator[tuple[Tensor, int]]:
    """The changes of those results that have the dimension of time, and which one it is."""
    num, length = len(read), read.shape[axis]
    for pair in zip(*results, strict=True):
        flat = axis == 1 and all(leaf.dim() > 1 and len(leaf) == num * length for leaf in pair)  # for the loss
        before, after = (leaf.unflatten(0, (num, length)) if flat else leaf for leaf in pair)
        times = [dim for dim in (1, -1) if before.dim() > 1 and before.shape[dim] == length]
        if times and before.shape == after.shape and len(before) == num and before.is_floating_point():
            yield change(before, after), times[0]


def _lets_in(one: Op, other: Op, half: int, length: int) -> bool:
    """Whether a change of the second half stands, in a result, in the first half of every dimension of time."""
    for before, after in zip(one.outputs[:1], other.outputs[:1], strict=False):
        if before.shape != after.shape or not before.is_floating_point():
            continue
        changed = change(before, after) > _LEAK
        dims = [dim for dim, size in enumerate(before.shape) if size == length]
        if dims and all(changed.narrow(dim, 0, half).any() for dim in dims):
            return True
    return False
