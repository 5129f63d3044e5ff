"""Images and sequences whose channels are last, in layers that take them first."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from playbook.doctor import replay
from playbook.doctor.findings import POOR_START, Defect, Finding, Place
from playbook.doctor.losses import SHAPE_ONLY
from playbook.doctor.record import CONVOLUTIONS, Op, Record
from playbook.doctor.samples import leaves
from playbook.doctor.steps import Step
from playbook.doctor.subject import Subject

CHANNEL_ORDER = Defect(
    "channel-order",
    "critical",
    "The convolution takes rows for channels, or ends with an error.",
    explains=("crash", "unnormalized-input", *POOR_START),
)
DEFECTS = (CHANNEL_ORDER,)

_ORDERS = SHAPE_ONLY - {"float", "double", "half", "to", "type", "contiguous", "clone", "unsqueeze"}
_NEAR = 0.5  # the correlation of a pixel with the next
_SAME_COLOURS = 0.3  # of one colour with the next
_SMOOTHER = 0.6  # as rough as given, when its memory is read with the channels last


def channel_order(subject: Subject) -> Iterator[Finding | str]:
    """Looks at what the first convolutions and norms get: the channels that they have, in another dimension.

    Five signs: the layer ends with an error, and a later dimension has its number of channels; the input is square in
    its first two dimensions and has 1, 3 or 4 values in the last; these two are at least 8 and not square, and values
    are alike along both and from colour to colour, as pixels are; read with the channels last, the pixels are much
    smoother than as they stand, so that a reshape took the place of a permutation; all three dimensions are as long,
    and only along the last one the means differ.

    What is not square may be meant as it is: signals of many channels with a few values at each time. So kernels that
    do not reach along both dimensions, and sides of which one is more than four times the other, are spared, and so is
    all whose neighbours are not correlated along the channels (sensors, features) or along the height (joints),
    or whose last dimension holds unlike things (coordinates, derivatives).
    """
    if not subject.batches:
        return
    batch = subject.batches[0]
    step = subject.attempt()
    record = step.record
    if step.error is not None:
        found = _failed(record.ops[-1], step) if record.ops else None
        if found is not None:
            yield _finding(subject, record, batch, *found)
        return
    looked = False
    for op in record.named(*CONVOLUTIONS):
        x = op.inputs[0]
        spatial = CONVOLUTIONS[op.name]
        if x.dim() != spatial + 2 or not _untouched(step, x):
            continue
        looked = True
        square = spatial == 2 and x.shape[1] == x.shape[2] >= 8 and x.shape[3] in (1, 3, 4)
        if square:
            yield _finding(subject, record, batch, op, x.shape[3], "and is square in the two before its last")
            return
        if spatial == 2 and _is_image(op, x):
            sign = "and is as smooth along it as along the next: a height, before a last dimension of colours"
            yield _finding(subject, record, batch, op, x.shape[1], sign)
            return
        if spatial == 2 and 5 <= x.shape[1] == x.shape[2] == x.shape[3] and _differs_along_last(x):
            sign = "and only along the last dimension the means differ, as those of channels do"
            yield _finding(subject, record, batch, op, x.shape[1], sign)
            return
        if spatial == 2 and 2 <= x.shape[1] <= 4 and min(x.shape[2:]) >= 8 and _is_smoother(x):
            yield _finding(
                subject, record, batch, op, x.shape[1], "but its memory holds an image with the channels last"
            )
            return
    if looked:
        yield "the convolutions get their channels first"


def _failed(op: Op, step: Step) -> tuple[Op, int, str] | None:
    """Whether the call in which the step failed had its channels elsewhere."""
    if op.out is not None or not op.inputs:
        return None
    x = op.inputs[0]
    if op.name in CONVOLUTIONS:
        weight = op.argument(1, "weight")
        groups = op.argument(6, "groups", 1) if "transpose" not in op.name else 1
        channels = weight.shape[0] if "transpose" in op.name else weight.shape[1] * groups
        axis = x.dim() - CONVOLUTIONS[op.name] - 1
    elif op.name in ("batch_norm", "instance_norm", "group_norm"):
        sizes = [item.numel() for item in op.inputs[1:] if item.dim() == 1]
        channels, axis = (sizes[0], 1) if sizes and x.dim() > 2 else (0, 1)
    else:
        return None
    wrong = 0 <= axis < x.dim() and x.shape[axis] != channels and channels in x.shape[axis + 1 :]
    return (op, channels, "and fails") if wrong and _untouched(step, x) else None


def _untouched(step: Step, x: Tensor) -> bool:
    """Whether no layer comes before: the tensor is computed from the batch without any weights."""
    return not x.requires_grad and step.is_from_data(x)


def _is_image(op: Op, x: Tensor) -> bool:
    """Whether an input (B, H, W, C) shows that it is an image: neighbours along H, W and C are alike."""
    weight = op.argument(1, "weight")
    _, height, width, colours = x.shape
    sides = sorted((height, width))
    if sides[0] < 8 or sides[1] > 4 * sides[0] or colours not in (1, 3, 4) or min(weight.shape[2:]) < 2:
        return False
    images = x.detach().double()
    images = images - images.mean(dim=(1, 2), keepdim=True)
    alike = (_correlation(images[:, :-1], images[:, 1:]) > _NEAR) & (
        _correlation(images[:, :, :-1], images[:, :, 1:]) > _NEAR
    )
    if colours > 1:
        shown = images[..., :3]  # a fourth is transparency
        alike &= _correlation(shown[..., :-1], shown[..., 1:]) > _SAME_COLOURS
    return bool(alike.double().mean() > 0.8)


def _correlation(one: Tensor, two: Tensor) -> Tensor:
    """Of the values of each image with their neighbours, both with a mean of zero."""
    dims = tuple(range(1, one.dim()))
    scale = (one.square().sum(dim=dims) * two.square().sum(dim=dims)).sqrt()
    return (one * two).sum(dim=dims) / (scale + 1e-12)


def _differs_along_last(x: Tensor) -> bool:
    """Whether the means along the last dimension of most samples spread far wider than those along the other two."""
    down, across, last = (x.detach().double().mean(dim=dims).var(dim=1) for dims in ((2, 3), (1, 3), (1, 2)))
    return bool((last > 5 * torch.maximum(down, across)).double().mean() > 0.9)


def _is_smoother(x: Tensor) -> bool:
    images = x.detach().double()
    number, channels, height, width = images.shape
    other = images.reshape(number, height, width, channels).permute(0, 3, 1, 2)
    rough, smooth = _roughness(images), _roughness(other)
    smoother = ((smooth < _SMOOTHER * rough) & (rough > 0)).double().mean() > 0.8
    return bool(smoother or _is_interleaved(images.flatten(1), channels))


def _is_interleaved(values: Tensor, channels: int) -> bool:
    """Whether neighbours in memory are less alike than every third value, as with pixels of three channels."""
    distances = [(values[:, lag:] - values[:, :-lag]).abs().mean(dim=1) for lag in range(1, 3 * channels + 1)]
    same = torch.stack(distances[channels - 1 :: channels])  # (3, B), of the same channel
    others = torch.stack([item for lag, item in enumerate(distances, 1) if lag % channels])
    return bool((same.amax(dim=0) < 0.9 * others.amin(dim=0)).double().mean() > 0.6)


def _roughness(images: Tensor) -> Tensor:
    """The mean difference of neighbours, by image."""
    down = (images[:, :, 1:] - images[:, :, :-1]).abs().mean(dim=(1, 2, 3))
    return down + (images[..., 1:] - images[..., :-1]).abs().mean(dim=(1, 2, 3))


def _finding(subject: Subject, record: Record, batch: Any, op: Op, channels: int, sign: str) -> Finding:
    x = op.inputs[0]
    message = f"{op.name} takes {channels} channels in dimension 1, gets {tuple(x.shape)}, {sign}"
    spatial = x.dim() - 2
    order = ", ".join(map(str, [0, x.dim() - 1, *range(1, 1 + spatial)]))
    fix = f"x = x.permute({order})  # channels first"
    if "memory" in sign:
        fix = "x = x.permute(2, 0, 1)  # in place of view or reshape"
    return Finding(CHANNEL_ORDER, _place(subject, record, batch, x, channels) or op.place, message, fix)


def _place(subject: Subject, record: Record, batch: Any, x: Tensor, channels: int) -> Place | None:
    """The step's own permutation or view if it made the order, else where the data get it."""
    given = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor)]
    if all(leaf is not x for leaf in given):
        maker = record.producer(x)
        if (
            maker is not None
            and maker.name in SHAPE_ONLY | {"rearrange"}
            and maker.name not in ("float", "to", "unsqueeze")
        ):
            return maker.place
    leaf = next((item for item in leaves(batch).values() if item.shape[1:] == x.shape[1:]), None)
    if leaf is None or isinstance(x, nn.Parameter):
        return None
    shape = tuple(leaf.shape[1:])

    def alike(array: np.ndarray, _: Any) -> bool:  # pragma: no cover - a tracer is not traced
        return tuple(array.shape) == shape or tuple(array.shape[1:]) == shape

    return replay.first_line(subject, lambda array, value: isinstance(value, torch.Tensor) and alike(array, value)) or (
        replay.first_line(subject, alike)
    )
