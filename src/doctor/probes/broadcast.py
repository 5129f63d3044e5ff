"""Predictions and targets of different shapes that meet in the loss."""

from collections.abc import Iterator

import torch
from torch import Tensor

from src.doctor.findings import Finding
from src.doctor.losses import REGRESSION, SHAPE_ONLY
from src.doctor.record import Op, tensors
from src.doctor.subject import Subject

IDS = ("bad-broadcast",)
LIGHT = True
_PAIRED = (*REGRESSION, "binary_cross_entropy_with_logits", "sub", "rsub", "__sub__", "__rsub__", "mul", "eq", "div")


def broadcast(subject: Subject) -> Iterator[Finding | str]:
    """Records a training step: a prediction (B, 1) and a target (B,) of the batch make a result (B, B).

    Reported when both are as long as the batch, the result is larger than either, and the operand of fewer dimensions
    comes from the batch as it is: losses over pairs of samples give their operands their dimensions on purpose.
    """
    batch = subject.batches[0]
    leaves = {id(leaf) for leaf in tensors(batch)}
    record, _ = subject.recorded(batch)
    for op in record.ops:
        if op.name not in _PAIRED or len(op.inputs) < 2 or not op.grad:
            continue
        left, right = op.inputs[:2]
        if not _grows(left, right) or not (left.requires_grad or right.requires_grad):
            continue
        target = right if left.requires_grad else left
        if target.requires_grad or id(record.origin(target, SHAPE_ONLY)) not in leaves:
            continue
        shapes = f"{tuple(left.shape)} and {tuple(right.shape)}"
        whole = tuple(torch.broadcast_shapes(left.shape, right.shape))
        message = f"{op.name} of {shapes} compares every prediction with every target: {whole}"
        yield Finding("bad-broadcast", op.place, message, _fix(op, left, right))
        return
    yield "predictions and targets have the same shape in the loss"


def _grows(left: Tensor, right: Tensor) -> bool:
    if left.dim() == right.dim() or not left.dim() or not right.dim() or len(left) <= 1:
        return False
    try:
        shape = torch.broadcast_shapes(left.shape, right.shape)
    except RuntimeError:
        return False
    return len(left) == len(right) and shape.numel() > max(left.numel(), right.numel())


def _fix(op: Op, left: Tensor, right: Tensor) -> str:
    wide = "prediction" if (left.dim() > right.dim()) == left.requires_grad else "target"
    return f"{wide}.squeeze(-1)  # before {op.name}"
