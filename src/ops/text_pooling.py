"""Pools the vectors of a text's tokens into one, and drops whole words."""

from typing import Literal

import torch
from torch import Tensor

POOLINGS = ("mean", "max", "first")


def pool_text(x: Tensor, mask: Tensor, pooling: Literal["mean", "max", "first"]) -> Tensor:
    """Pools the vectors of a text's tokens; a text without tokens gives zeros.

    Args:
        x: vectors (B, T, D).
        mask: (B, T), True for tokens and False for padding after them.
        pooling: mean, max, or first, the first token's vector.

    Returns:
        (B, D).
    """
    is_token = mask[..., None]  # (B, T, 1)
    if pooling == "first":
        return x[:, 0].masked_fill(~is_token[:, 0], 0.0)
    if pooling == "mean":
        return x.masked_fill(~is_token, 0.0).sum(dim=1) / is_token.sum(dim=1).clamp(min=1)
    largest = x.masked_fill(~is_token, -torch.inf).amax(dim=1)  # (B, D)
    return largest.masked_fill(~is_token.any(dim=1), 0.0)


def drop_words(x: Tensor, share: float) -> Tensor:
    """Sets whole vectors of (B, T, D) to zero, each with a probability of `share`."""
    is_kept = torch.rand(x.shape[:2], device=x.device) >= share  # (B, T)
    return x * is_kept[..., None]
