"""Padding that changes results at real positions."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from torchdoctor.evidence.dependence import (
    NOT_NUMBERS,
    are_all_nan,
    evaluation_step,
    first_violation,
    map_tensors,
    relative_change,
    repeat_row,
    sample_outputs,
)
from torchdoctor.evidence.samples import leaves, spread_indices, train_loaders
from torchdoctor.evidence.tokens import padding_token
from torchdoctor.findings import Defect, Evidence, Finding, NotLookedAt
from torchdoctor.probe import Need, Probe
from torchdoctor.running.batches import num_samples
from torchdoctor.running.record import DRAWS, RECURRENT, Op, tensors
from torchdoctor.running.steps import Step
from torchdoctor.running.subject import Subject

PADDING_LEAK = Defect(
    "padding-leak",
    "critical",
    "Results change with the length of the longest sample in the batch.",
    shown_by=Evidence("experiment", "padding was cut off, and the result of the same sample was compared"),
)
_CONTENT = Evidence("experiment", "other padding was put in, and the result of the same sample was compared")
_LEAST = 4  # positions of padding
_ITEMS = 8  # samples whose lengths are compared
_ATTENTION = ("softmax", "matmul", "bmm", "einsum", "scaled_dot_product_attention", "multi_head_attention_forward")
_ATTENTION += ("_transformer_encoder_layer_fwd", "_native_multi_head_attention")
_COMPARISONS = ("eq", "ne", "gt", "ge", "lt", "le", "any", "all", "bool")  # of which masks are made
_FIXES = {
    RECURRENT: ("nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)"),
    _ATTENTION: ("scores.masked_fill(is_padding[:, None, :], -torch.inf)  # or key_padding_mask=is_padding"),
    ("mean", "sum"): "x.masked_fill(is_padding[..., None], 0).sum(1) / lengths[:, None]",
    ("max", "amax"): "x.masked_fill(is_padding[..., None], -torch.inf).amax(1)",
    ("__getitem__", "select"): "x[torch.arange(len(x)), lengths - 1]  # the last step of each sample",
}
_ANY_FIX = "x.masked_fill(is_padding[..., None], 0)  # before this call, with True where padding stands"
_INVERTED = "key_padding_mask=~mask  # True where padding stands; a mask of attention itself has True where it looks"
_LOCAL = ("conv1d", "conv2d", "conv_transpose1d", "unfold")  # may see that there is some padding next to them


def padding(
    subject: Subject, least_change: float = 1e-3, rounding: float = 1e-5
) -> Iterator[Finding | str | NotLookedAt]:
    """Runs the shortest sample of a batch with all of its padding and with little: its results must not change.

    Little is two steps, since a recurrent net settles soon, and half of all where there are convolutions.

    What is padding is read off the values: positions at the end that are all equal (0 for sequences of features), in
    samples of different lengths. Programs that need one length refuse the shorter batch, and are not looked at. Where
    every batch has one length, samples do not depend on each other, and this is advice.

    Where the amount changes nothing, the content of the padding is changed: results that follow it, through attention
    that gives all amounts the same weight in sum, look at the padding alone, as with an inverted mask.

    Args:
        subject: the training that has just begun.
        least_change: share of the output's scale; clean programs: at most 4e-7, defective: 0.4 and up.
        rounding: the same that counts as no change.
    """
    batch = (subject.val_batches if subject.validates else subject.batches)[0]
    size = num_samples(batch)
    padded = _padded(batch)
    limits = least_change, rounding
    results = [_leak(subject, batch, size, *sample, *limits) for sample in padded] if size is not None else []
    looked = [result for result in results if result is not None]
    if padded and not looked:
        yield NotLookedAt(PADDING_LEAK, "the step takes no shorter batch, or its results show no length")
    yield from [result for result in looked if isinstance(result, Finding)][:1] or looked[:1]


PROBE = Probe(
    look=padding,
    defects=(PADDING_LEAK,),
    needs=(Need.BATCHES, Need.SAMPLES, Need.VAL_SAMPLES, Need.FEWER_SAMPLES),
    is_light=True,
)


def _leak(
    subject: Subject, batch: Any, size: int, row: int, length: int, total: int, least_change: float, rounding: float
) -> Finding | str | NotLookedAt | None:
    """What cutting the padding off a sample does; None where that cannot be told.

    Args:
        subject: whose step is run.
        batch: that holds the sample.
        size: number of samples in the batch.
        row: index of the sample.
        length: of the sample without its padding, in steps.
        total: of the sample with its padding, in steps.
        least_change: as of `padding`.
        rounding: as of `padding`.
    """

    def cut(steps: int, copies: int) -> Any:
        return repeat_row(batch, row, size, total, slice(steps), copies)

    numbers = (2, size)  # a state may be made for as many samples as the loader gives
    copies = next((n for n in numbers if subject.accepts(cut(total, n), training=not subject.validates)), None)
    if copies is None:
        return None
    whole = evaluation_step(subject, cut(total, copies))
    if are_all_nan(sample_outputs(whole, copies)):
        return NotLookedAt(PADDING_LEAK, NOT_NUMBERS)
    middle = (length + total + 1) // 2 if any(whole.record.named(*_LOCAL)) else length + 2
    try:
        shorter = evaluation_step(subject, cut(middle, copies))
    except (AssertionError, RuntimeError, ValueError, IndexError):
        return None
    results = zip(sample_outputs(whole, copies), sample_outputs(shorter, copies), strict=False)
    pairs = [_real_positions(a, b, length) for a, b in results if a.shape[2:] == b.shape[2:]]
    worst = max((relative_change(*pair).max().item() for pair in pairs if pair is not None), default=None)
    if worst is None:
        return None
    if worst <= least_change:  # an untrained model may answer nearly the same to everything
        unlike = (
            _content_leak(subject, cut(total, copies), whole, copies, length, middle, least_change, rounding)
            if worst <= rounding
            else None
        )
        return unlike or ("the amount of padding does not change results" if worst <= rounding else None)
    op = first_violation(
        whole.record, shorter.record, lambda one, other: _real_positions_differ(one, other, length, least_change)
    )
    if any(loss.op is op for loss in whole.losses) or (op is not None and op.name in DRAWS):
        return None  # what a loss ignores is another matter; random numbers depend on how many there are
    message = (
        f"a sample of {length} steps changes by {worst:.2g} of its size with {total - middle} fewer steps of padding"
    )
    defect = PADDING_LEAK
    if not _lengths_vary(subject, total):
        defect = replace(defect, severity="advice", impact="Results depend on the one length that all samples get.")
    fix = next((text for names, text in _FIXES.items() if op is not None and op.name in names), _ANY_FIX)
    return Finding(defect, op and op.place, message, fix)


def _content_leak(
    subject: Subject,
    batch: Any,
    whole: Step,
    copies: int,
    length: int,
    start: int,
    least_change: float,
    rounding: float,
) -> Finding | NotLookedAt | None:
    """What other padding in the place of a sample's own does; None where it does nothing, or nothing could be changed.

    Args:
        subject: whose step is run.
        batch: of the sample alone.
        whole: the step on it.
        copies: of the sample in it.
        length: of the sample without its padding.
        start: the first position whose content is changed: what it held is known to add nothing.
        least_change: as of `padding`.
        rounding: as of `padding`.
    """
    embeddings = [part for part in subject.model.modules() if isinstance(part, nn.Embedding)]
    with ExitStack() as stack:
        for part in embeddings:
            hook = part.register_forward_hook(partial(_other_padding, length, start))
            stack.callback(hook.remove)
        other = evaluation_step(subject, map_tensors(batch, lambda leaf: _with_noise(leaf, length, start)))
    sees_values = any(
        not torch.equal(a, b)
        for one, two in zip(whole.record.ops, other.record.ops, strict=False)
        for a, b in zip(one.outputs, two.outputs, strict=False)
        if one.name.strip("_") in _COMPARISONS and a.dtype == torch.bool and a.shape == b.shape
    )
    pairs = list(zip(sample_outputs(whole, copies), sample_outputs(other, copies), strict=False))
    real = [
        pair for a, b in pairs if a.shape == b.shape and (pair := _without_padding(a, b, length, batch)) is not None
    ]
    if sees_values or max((relative_change(*pair).max().item() for pair in real), default=0.0) <= least_change:
        return _positions_are_independent(subject, batch, whole, length, rounding) if sees_values else None
    op = first_violation(
        whole.record, other.record, lambda one, two: _differs_at_real_positions(one, two, length, batch, least_change)
    )
    if op is None or op.name not in _ATTENTION:
        is_zero = any(part.padding_idx is not None for part in embeddings)  # always, so that its sums add nothing
        reason = "results do not change with the amount of padding, but would with its content"
        return None if is_zero else NotLookedAt(PADDING_LEAK, reason)
    message = (
        f"the results of a sample of {length} steps do not change with the amount of its padding, but follow what "
    )
    message += f"stands there: {op.name} looks at the padding in place of the sample"
    defect = replace(PADDING_LEAK, impact="Attention leaves out what it should see, and sees the padding alone.")
    return Finding(replace(defect, shown_by=_CONTENT), op.place, message, _INVERTED)


def _positions_are_independent(
    subject: Subject, batch: Any, whole: Step, length: int, rounding: float
) -> NotLookedAt | None:
    """Whether attention passes nothing on from one position of a sample to another: its mask may be inverted."""
    if not any(True for _ in whole.record.named(*_ATTENTION)):
        return None
    for position in (0, length - 1):
        other = evaluation_step(
            subject, map_tensors(batch, lambda leaf, p=position: _with_noise(leaf, length, p, p + 1))
        )
        for one, two in zip(whole.record.named(*_ATTENTION), other.record.named(*_ATTENTION), strict=False):
            for a, b in zip(one.outputs, two.outputs, strict=False):
                total = _padded_length(batch)
                dims = [dim for dim, size in enumerate(a.shape) if size == total]
                if a.shape != b.shape or not dims or not a.is_floating_point():
                    continue
                moved = relative_change(a, b).movedim(dims[0], 0).flatten(1).amax(1)[:length]
                moved[position] = 0
                if (moved > rounding).any():
                    return None
    return NotLookedAt(PADDING_LEAK, "attention passes nothing from one position to another; a mask may be inverted")


def _padded_length(batch: Any) -> int:
    return max((leaf.shape[1] for leaf in tensors(batch) if leaf.dim() > 1), default=0)


def _other_padding(length: int, start: int, part: nn.Module, args: Any, output: Any) -> Tensor | None:
    """Other embeddings in the place of the padding's, where tokens end with one that stands nowhere else."""
    tokens = args[0] if args and isinstance(args[0], Tensor) else None
    with torch._C.DisableTorchFunction():  # so that both steps have the same calls
        if tokens is None or tokens.dim() != 2 or tokens.shape[1] <= start:
            return None
        if (tokens[:, length:] != tokens[0, -1]).any() or (tokens[:, :length] == tokens[0, -1]).any():
            return None
        noise = torch.randn(output.shape[1:], generator=torch.Generator().manual_seed(0)).to(output)[start:]
        return torch.cat([output[:, :start], noise.expand(len(output), *noise.shape)], 1)


def _with_noise(leaf: Tensor, length: int, start: int, end: int | None = None) -> Tensor:
    """A sequence of features with noise in some positions: of its padding, or of its own."""
    if leaf.dim() != 3 or not leaf.is_floating_point() or leaf.shape[1] <= start or leaf[:, length:].any():
        return leaf
    noise = torch.randn(leaf.shape[1:], generator=torch.Generator().manual_seed(0)).to(leaf)
    values = leaf.clone()
    values[:, start:end] = (noise * leaf.abs().mean().clamp(min=1e-3))[start:end]
    return values


def _without_padding(before: Tensor, after: Tensor, length: int, batch: Any) -> tuple[Tensor, Tensor] | None:
    """Two results of one shape with their real positions alone."""
    total = _padded_length(batch)
    for dim, size in enumerate(before.shape):
        if size == total:
            before, after = before.narrow(dim, 0, length), after.narrow(dim, 0, length)
    return (before, after) if before.numel() else None


def _differs_at_real_positions(one: Op, other: Op, length: int, batch: Any, least_change: float) -> bool:
    """Whether the results that belong to real positions differ, in calls of the same shapes."""
    results = zip(one.outputs[:1], other.outputs[:1], strict=False)
    pairs = [_without_padding(a, b, length, batch) for a, b in results if a.shape == b.shape and a.is_floating_point()]
    return any(bool((relative_change(*pair) > least_change).any()) for pair in pairs if pair is not None)


def _lengths_vary(subject: Subject, total: int) -> bool:
    """Whether batches are padded to different lengths: they are, or the samples that they are made of."""
    if subject.positions is not None:  # all were cut to one length
        return True
    lengths = [[steps for _, _, steps in _padded(batch)] for batch in (*subject.batches, *subject.val_batches)]
    if any(of_batch and total not in of_batch for of_batch in lengths):
        return True
    datasets = [loader.dataset for loader in train_loaders(subject)]
    samples = [leaves(dataset[number]) for dataset in datasets for number in spread_indices(dataset, _ITEMS)]
    shapes = {(path, leaf.shape) for sample in samples for path, leaf in sample.items() if leaf.dtype != torch.uint8}
    return len(shapes) > len({path for path, _ in shapes})  # bytes are texts, which may be cut to any length


def _padded(batch: Any) -> list[tuple[int, int, int]]:
    """The shortest sample of each padded tensor, one for each length that all get: its index, its length, and that."""
    by_length: dict[int, tuple[int, int, int]] = {}
    for leaf in tensors(batch):
        if leaf.dim() not in (2, 3) or leaf.shape[1] <= _LEAST or leaf.dtype == torch.bool:
            continue
        if leaf.is_floating_point() and leaf.dim() == 2:
            continue
        steps = leaf if leaf.dim() == 2 else leaf.flatten(2).abs().sum(2)
        value = 0 if leaf.dim() == 3 else padding_token(steps)
        if value is None:
            continue
        lengths = ((steps != value) * torch.arange(1, steps.shape[1] + 1)).amax(1)
        shortest = int(lengths.clamp(min=1).argmin())
        uneven = lengths.unique().numel() > 2 and steps.unique().numel() > 3  # masks are no sequences
        if uneven and 1 <= lengths[shortest] <= steps.shape[1] - _LEAST:
            by_length.setdefault(steps.shape[1], (shortest, int(lengths[shortest]), steps.shape[1]))
    return list(by_length.values())


def _real_positions(before: Tensor, after: Tensor, length: int) -> tuple[Tensor, Tensor] | None:
    """Two results with their real positions alone, in the dimensions in which they differ; None if they lack some."""
    if before.dim() != after.dim():
        return None
    for dim, sizes in enumerate(zip(before.shape, after.shape, strict=True)):
        if sizes[0] != sizes[1]:
            if min(sizes) < length:
                return None
            before, after = before.narrow(dim, 0, length), after.narrow(dim, 0, length)
    return before, after


def _real_positions_differ(one: Op, other: Op, length: int, least_change: float) -> bool:
    """Whether the results that belong to real positions differ."""
    results = zip(one.outputs[:1], other.outputs[:1], strict=False)
    pairs = [_real_positions(before, after, length) for before, after in results if before.is_floating_point()]
    return any(bool((relative_change(*pair) > least_change).any()) for pair in pairs if pair is not None)
