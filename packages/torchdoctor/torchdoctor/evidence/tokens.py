"""Finds the tokens that a model reads, their padding, and the shift of its targets."""

import math

import torch
from torch import Tensor

from torchdoctor.running.losses import Loss
from torchdoctor.running.record import Record, tensors

_MATCH = 0.99  # share of positions at which target and input are the same


def tokens_read(record: Record) -> list[Tensor]:
    """The token tensors (B, T) that modules read."""
    read = [leaf for _, arguments, _ in record.calls for leaf in tensors(arguments)]
    return [leaf for leaf in read if leaf.dim() == 2 and leaf.dtype == torch.int64 and leaf.shape[1] > 1]


def padding_token(tokens: Tensor) -> int | None:
    """The padding token: the value that many rows (B, T) end with and that occurs nowhere else."""
    last, counts = tokens[:, -1].unique(return_counts=True)
    value = last[counts.argmax()]
    ends = (tokens == value).flip(1).long().cumprod(1).flip(1).bool()
    return int(value) if torch.equal(ends, tokens == value) and counts.max() > 1 else None


def target_shift(read: Tensor, loss: Loss) -> tuple[int, int | None]:
    """The time dimension, and the steps that the target is ahead of the input: 0, 1, or None for other targets."""
    ignored = loss.op.argument(4, "ignore_index", -100) if loss.kind == "classes" else None
    for axis in (1, -1) if read.dim() > 2 else (1,):
        ours = read.movedim(axis, 1)
        num, length, *rest = ours.shape
        if length < 4 or read.is_sparse or loss.target.is_floating_point() != read.is_floating_point():
            continue
        pad = padding_token(ours) if ours.dim() == 2 and ours.dtype == torch.int64 else None
        is_word = torch.ones_like(ours, dtype=torch.bool) if pad is None else ours != pad
        for steps in (length, length - 1):
            shape = [num, *rest, steps] if axis == -1 else [num, steps, *rest]
            if loss.target.numel() != math.prod(shape):
                continue
            wanted = loss.target.reshape(shape).movedim(axis, 1)
            if steps == length and _is_same(wanted, ours, is_word, ignored):
                return axis, 0
            if _is_same(wanted[:, : length - 1], ours[:, 1:], is_word[:, 1:], ignored):
                return axis, 1
    return 1, None


def _is_same(wanted: Tensor, read: Tensor, is_word: Tensor, ignored: int | None) -> bool:
    """Whether target and input agree where labels count, except for an end token beside padding."""
    counted = is_word if ignored is None else is_word & (wanted != ignored)
    if not counted.any() or (read[0] == read[0, :1]).all():
        return False
    return (wanted == read)[counted].double().mean().item() > _MATCH
