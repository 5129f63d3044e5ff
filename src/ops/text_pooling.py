"""One vector for a text from those of its tokens, whatever padding is behind them, and the dropout of whole words."""

from typing import Literal

import torch
from torch import Tensor

POOLINGS = ("mean", "max", "first")


def pool_text(x: Tensor, mask: Tensor, pooling: Literal["mean", "max", "first"]) -> Tensor:
    """Pools the vectors of a text's tokens; a text without tokens has zeros.

    Args:
        x: vectors (B, T, D).
        mask: (B, T), True at tokens and False at padding behind them.
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


def drop_words(x: Tensor, mask: Tensor, share: float) -> Tensor:
    """Sets whole vectors to zero, each with a probability of `share`; a text that would lose all its tokens keeps them.

    Without this, layer norms of nothing but zeros raise the gradients of short texts a thousandfold.

    Args:
        x: vectors (B, T, D).
        mask: (B, T), True at tokens and False at padding behind them.
        share: probability, in [0, 1).
    """
    kept_tokens = mask & (torch.rand(x.shape[:2], device=x.device) >= share)  # (B, T)
    loses_all = ~kept_tokens.any(dim=1, keepdim=True)  # (B, 1)
    return x * (kept_tokens | loses_all)[..., None]
