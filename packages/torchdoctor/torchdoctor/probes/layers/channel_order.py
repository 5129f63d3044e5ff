"""Channels-last inputs of channels-first layers."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdoctor.evidence import replay
from torchdoctor.evidence.samples import leaves
from torchdoctor.findings import POOR_START, Defect, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.losses import SHAPE_ONLY
from torchdoctor.running.record import CONVOLUTIONS, Op
from torchdoctor.running.steps import Step
from torchdoctor.running.subject import Subject

CHANNEL_ORDER = Defect(
    "channel-order",
    "critical",
    "The convolution takes rows for channels, or ends with an error.",
    explains=("crash", "unnormalized-input", *POOR_START),
)

_CASTS = frozenset(["float", "double", "half", "to", "type", "unsqueeze"])
_SAME_COLOURS = 0.3  # of one colour with the next
_CLOSER = 0.9  # two values of one channel than of two, where channels are interleaved
_MOST_PIXELS = 0.6  # of the samples; of pictures with hardly any colour, neighbours are alike


def channel_order(subject: Subject, near: float = 0.5, most: float = 0.8) -> Iterator[Finding | str]:
    """Checks whether the inputs of the first convolutions and norms have their channels in another dimension.

    Five signs: the layer ends with an error, and a later dimension has its number of channels; the input is square in
    its first two dimensions and has 1, 3 or 4 values in the last; these two are at least 8 and not square, and values
    are alike along both and from colour to colour, as pixels are; in memory, values one channel apart are closer than
    neighbours, so that a reshape took the place of a permutation; all three dimensions are as long, and only along the
    last one the means differ.

    What is not square may be meant as it is: signals of many channels with a few values at each time. So kernels that
    do not reach along both dimensions, and sides of which one is more than four times the other, are spared, and so is
    all whose neighbours are not correlated along the channels (sensors, features) or along the height (joints),
    or whose last dimension holds unlike things (coordinates, derivatives).

    Args:
        subject: the training that has just begun.
        near: correlation of a pixel with the next.
        most: share of the samples that show it.
    """
    if not subject.batches:
        return
    step = subject.attempt()
    if step.error is not None:
        op = step.record.ops[-1] if step.record.ops else None
        channels = _expected(op) if op is not None and op.out is None and op.inputs else None
        if op is not None and channels is not None and _is_untouched(step, op.inputs[0]):
            yield _finding(subject, step, op, channels, "and fails")
        return
    convolutions = [op for op in step.record.named(*CONVOLUTIONS) if op.inputs[0].dim() == CONVOLUTIONS[op.name] + 2]
    convolutions = [op for op in convolutions if _is_untouched(step, op.inputs[0])]
    for op in convolutions:
        sign = _sign(op, op.inputs[0].detach().double(), near, most) if CONVOLUTIONS[op.name] == 2 else None
        if sign is not None:
            yield _finding(subject, step, op, op.inputs[0].shape[1], sign)
            return
    if convolutions:
        yield "the convolutions get their channels first"


PROBE = Probe(look=channel_order, defects=(CHANNEL_ORDER,))


def _is_untouched(step: Step, x: Tensor) -> bool:
    """Whether no layer comes before: the tensor is computed from the batch without any weights."""
    return not x.requires_grad and step.is_from_data(x)


def _expected(op: Op) -> int | None:
    """The channels of a layer that failed, if its input has another number of them, and this one later."""
    x = op.inputs[0]
    if op.name in CONVOLUTIONS:
        weight, is_transposed = op.argument(1, "weight"), "transpose" in op.name
        channels = weight.shape[0] if is_transposed else weight.shape[1] * op.argument(6, "groups", 1)
        axis = x.dim() - CONVOLUTIONS[op.name] - 1
    elif op.name in ("batch_norm", "instance_norm", "group_norm"):
        channels, axis = next((item.numel() for item in op.inputs[1:] if item.dim() == 1), 0), 1
    else:
        return None
    is_elsewhere = 0 <= axis < x.dim() and x.shape[axis] != channels and channels in x.shape[axis + 1 :]
    return channels if is_elsewhere else None


def _sign(op: Op, x: Tensor, near: float, most: float) -> str | None:
    """What shows that an input (B, C, H, W) is (B, H, W, C), if anything does."""
    first, second, last = x.shape[1:]
    if first == second >= 8 and last in (1, 3, 4):
        return "and is square in the two before its last"
    is_wide = min(op.argument(1, "weight").shape[2:]) > 1
    if min(first, second) >= 8 and last in (1, 3, 4) and is_wide and _is_image(x, near, most):
        return "and is as smooth along it as along the next: a height, before a last dimension of colours"
    if 5 <= first == second == last and _differs_along_last(x, most):
        return "and only along the last dimension the means differ, as those of channels do"
    if 2 <= first <= 4 and min(second, last) >= 8 and _is_interleaved(x):
        return "but its memory holds an image with the channels last"
    return None


def _is_image(x: Tensor, near: float, most: float) -> bool:
    """Whether (B, H, W, C) are images: neighbours along H, W and C are alike."""
    if max(x.shape[1:3]) > 4 * min(x.shape[1:3]):
        return False
    x = x - x.mean(dim=(1, 2), keepdim=True)
    alike = (_correlation(x[:, :-1], x[:, 1:]) > near) & (_correlation(x[:, :, :-1], x[:, :, 1:]) > near)
    if x.shape[3] > 1:  # a fourth is transparency
        alike &= _correlation(x[..., :3][..., :-1], x[..., 1:3]) > _SAME_COLOURS
    return bool(alike.double().mean() > most)


def _correlation(one: Tensor, two: Tensor) -> Tensor:
    """Of the values of each image with their neighbours, both with a mean of zero."""
    one, two = one.flatten(1), two.flatten(1)
    return (one * two).sum(dim=1) / (one.norm(dim=1) * two.norm(dim=1) + 1e-12)


def _differs_along_last(x: Tensor, most: float) -> bool:
    """Whether the means along the last dimension of most samples spread far wider than those along the other two."""
    down, across, last = (x.mean(dim=dims).var(dim=1) for dims in ((2, 3), (1, 3), (1, 2)))
    return bool((last > 5 * down.maximum(across)).double().mean() > most)


def _is_interleaved(x: Tensor) -> bool:
    """Whether neighbours in memory are less alike than the next of the same channel, were it (B, H, W, C)."""
    values, channels = x.flatten(1), x.shape[1]
    *others, same = ((values[:, lag:] - values[:, :-lag]).abs().mean(dim=1) for lag in range(1, channels + 1))
    return bool((same < _CLOSER * torch.stack(others).amin(dim=0)).double().mean() > _MOST_PIXELS)


def _finding(subject: Subject, step: Step, op: Op, channels: int, sign: str) -> Finding:
    x = op.inputs[0]
    message = f"{op.name} takes {channels} channels in dimension 1, gets {tuple(x.shape)}, {sign}"
    order = ", ".join(map(str, [0, x.dim() - 1, *range(1, x.dim() - 1)]))
    fix, variant = f"x = x.permute({order})  # channels first", "permute"
    if "memory" in sign:
        maker = step.record.producer(x, _CASTS)
        order = order if maker is not None and maker.name in SHAPE_ONLY else "2, 0, 1"  # of the data, one by one
        fix, variant = f"x = x.permute({order}).contiguous()  # in place of view or reshape", "view"
    place = _place(subject, step, x) or op.place
    return Finding(CHANNEL_ORDER, place, message, fix, {"variant": variant, "order": order})


def _place(subject: Subject, step: Step, x: Tensor) -> Place | None:
    """The step's own permutation or view if it made the order, else where the data get it."""
    maker = step.record.producer(x, _CASTS)
    if maker is not None and maker.name in SHAPE_ONLY | {"rearrange"}:
        return maker.place
    shape = next((leaf.shape[1:] for leaf in leaves(step.batch).values() if leaf.shape[1:] == x.shape[1:]), None)
    if shape is None:
        return None

    def is_alike(array: np.ndarray, _: Any) -> bool:  # pragma: no cover - a tracer is not traced
        return shape in (array.shape, array.shape[1:])

    return replay.first_tensor_line(subject, is_alike)
