"""Losses that compare every image of a batch with every text, over all processes."""

from typing import Any

import torch
from torch import Tensor, distributed
from torch.nn.functional import logsigmoid, pad


def info_nce_loss(similarity: Tensor, is_pair: Tensor) -> Tensor:
    """Cross-entropy of each row against the columns that belong to it (van den Oord et al. 2018).

    If several columns belong to a row, such as equal captions, each of them is the target with the same probability
    (Yang et al. 2022).

    Args:
        similarity: scaled similarities (B, N).
        is_pair: whether a row and a column belong together (B, N), at least one in each row.

    Returns:
        A scalar, the mean over rows.
    """
    target = is_pair / is_pair.sum(dim=1, keepdim=True)  # (B, N)
    return -(target * similarity.log_softmax(dim=1)).sum(dim=1).mean()


def sigmoid_loss(similarity: Tensor, is_pair: Tensor) -> Tensor:
    """Binary cross-entropy of each pair on its own (Zhai et al. 2023, SigLIP), summed and divided by the rows.

    Args:
        similarity: scaled similarities plus the bias (B, N).
        is_pair: whether a row and a column belong together (B, N).

    Returns:
        A scalar.
    """
    sign = is_pair.to(similarity.dtype) * 2 - 1  # (B, N)
    return -logsigmoid(sign * similarity).sum(dim=1).mean()


def are_pairs(rows: Tensor, columns: Tensor) -> Tensor:
    """Whether samples belong together, as they have the same image or the same caption.

    Args:
        rows: number of the image and of the caption of each sample (B, 2).
        columns: the same of others (N, 2).

    Returns:
        (B, N).
    """
    return (rows[:, None] == columns[None]).any(dim=2)  # (B, N, 2) → (B, N)


class _Gather(torch.autograd.Function):
    """Rows of all processes in the order of the ranks; the backward pass sums the gradients of all processes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes = sizes
        padded = pad(x, (0, 0, 0, max(sizes) - len(x))).contiguous()  # (largest B, D)
        parts = [torch.empty_like(padded) for _ in sizes]
        distributed.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])  # (N, D)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        gradient = gradients[0].contiguous().clone()  # (N, D)
        distributed.all_reduce(gradient)
        rank = distributed.get_rank()
        start = sum(ctx.sizes[:rank])
        return gradient[start : start + ctx.sizes[rank]], None


def gather_rows(x: Tensor, sizes: list[int]) -> Tensor:
    """Concatenates the rows of all processes, with gradients; torch's own helpers are deprecated (2.15).

    Each process may have another number of rows, as in the last batch of an epoch. If every process computes the mean
    loss of its own rows against all gathered ones, and gradients are averaged with the numbers of rows as weights, the
    step equals that of one process with all rows.

    Args:
        x: rows of this process (B, D).
        sizes: number of rows of each process, see `row_counts`.

    Returns:
        (N, D), N the sum of the sizes; x itself if there is one process.
    """
    if len(sizes) == 1:
        return x
    gathered = _Gather.apply(x, sizes)
    assert isinstance(gathered, Tensor)
    return gathered


def row_counts(x: Tensor) -> list[int]:
    """Number of rows of x in each process; every process must ask at the same place."""
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1:
        return [len(x)]
    own = torch.tensor([len(x)], device=x.device)
    counts = [torch.empty_like(own) for _ in range(distributed.get_world_size())]
    distributed.all_gather(counts, own)
    return torch.cat(counts).tolist()
