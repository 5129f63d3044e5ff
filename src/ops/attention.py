"""Causal attention with documents, sliding windows and a cache of keys and values."""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

PADDING = -1  # as a document: invisible


class Cache:
    """Keys and values of the tokens that a net has processed, for generation.

    Args:
        batch_size: rows B.
        length: largest number of tokens.
        num_layers: blocks of the net, each with its own keys and values.
    """

    def __init__(self, batch_size: int, length: int, num_layers: int) -> None:
        self.batch_size = batch_size
        self.length = length
        self.filled = 0  # tokens that were processed
        self._keys: list[Tensor | None] = [None] * num_layers
        self._values: list[Tensor | None] = [None] * num_layers
        self._documents: Tensor | None = None

    def documents(self, new: Tensor | None, num_new: int, device: torch.device) -> Tensor | None:
        """Documents of all tokens, (B, filled + num_new); None if all are one document."""
        if self.filled + num_new > self.length:
            raise ValueError(f"cache: expected at most {self.length} tokens, got {self.filled + num_new}")
        if new is None and self._documents is None:
            return None
        if self._documents is None:
            self._documents = torch.zeros(self.batch_size, self.filled, dtype=torch.long, device=device)
        if new is None:  # a new token belongs to the last document
            new = self._documents[:, -1:].expand(-1, num_new)
        self._documents = torch.cat([self._documents, new], dim=1)
        return self._documents

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Adds keys and values (B, H, T, D / H) of new tokens, and returns those of all tokens."""
        keys, values = self._keys[layer], self._values[layer]
        if keys is None or values is None:
            shape = (self.batch_size, key.shape[1], self.length, key.shape[3])
            keys, values = key.new_zeros(shape), value.new_zeros(shape)
            self._keys[layer], self._values[layer] = keys, values
        end = self.filled + key.shape[2]
        keys[:, :, self.filled : end], values[:, :, self.filled : end] = key, value
        return keys[:, :, :end], values[:, :, :end]


def visible(
    num_queries: int,
    num_keys: int,
    window: int | None,
    documents: Tensor | None,
    device: torch.device,
) -> Tensor | None:
    """Attention mask; None for plain causal attention.

    The queries are the last positions. Position t attends to position s if s ≤ t, both are in the same document, and
    t − s < window. Padding attends only to itself, so that no row is empty.

    Args:
        num_queries: number of query positions.
        num_keys: number of key positions, at least num_queries.
        window: number of positions that a query attends to, its own included; None for all.
        documents: (B, num_keys), -1 for padding; None for one document.
        device: of the result.

    Returns:
        (1 or B, 1, num_queries, num_keys), True where a query attends to a key.
    """
    if documents is None and window is None and num_queries == num_keys:
        return None
    key = torch.arange(num_keys, device=device)  # (S,)
    query = key[num_keys - num_queries :, None]  # (T, 1)
    is_seen = key <= query  # (T, S)
    if window is not None:
        is_seen = is_seen & (query - key < window)
    if documents is None:
        return is_seen[None, None]
    own = documents[:, num_keys - num_queries :, None]  # (B, T, 1)
    same = (own == documents[:, None]) & (own != PADDING)  # (B, T, S)
    return ((is_seen & same) | (key == query))[:, None]


def visible_blocks(length: int, window: int | None, documents: Tensor | None, device: torch.device) -> Any:
    """The mask of `visible` for FlexAttention (Dong et al. 2024), which skips blocks that are masked entirely.

    On a CPU, FlexAttention has no backward (torch 2.15), and uncompiled it took ten times as long as SDPA: use it there
    only for comparison.

    Args:
        length: number of positions, each of them query and key.
        window: number of positions that a query attends to, its own included; None for all.
        documents: (B, length), -1 for padding; None for one document.
        device: of the result.

    Returns:
        A BlockMask.
    """
    from torch.nn.attention.flex_attention import create_block_mask

    def is_visible(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        is_seen = k <= q
        if window is not None:
            is_seen = is_seen & (q - k < window)
        if documents is not None:
            is_seen = (is_seen & (documents[b, q] == documents[b, k]) & (documents[b, q] != PADDING)) | (k == q)
        return is_seen

    batch_size = None if documents is None else len(documents)
    return create_block_mask(is_visible, batch_size, None, length, length, device=device.type)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Any) -> Tensor:
    """Attention of H query heads over H or fewer key heads.

    Computed in float32 on a CPU, whatever the autocast precision: the backward of bf16 took 3.5 to 5 times as long.

    Args:
        query: (B, H, T, D / H).
        key: (B, G, S, D / H), where G divides H.
        value: as key.
        mask: returned by `visible`, where None means causal, or by `visible_blocks`.

    Returns:
        (B, H, T, D / H) in the precision of the value.
    """
    grouped = bool(key.shape[1] != query.shape[1])  # TorchScript traces sizes as tensors
    if mask is not None and not isinstance(mask, Tensor):
        return _flex_attention(query.device.type)(query, key, value, block_mask=mask, enable_gqa=grouped)
    low = query.device.type == "cpu" and value.dtype in (torch.bfloat16, torch.float16)
    q, k, v = (x.float() for x in (query, key, value)) if low else (query, key, value)
    with torch.autocast("cpu", enabled=False):
        x = scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, enable_gqa=grouped)
    return x.to(value.dtype)


@cache
def _flex_attention(device_type: str) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention if device_type == "cpu" else torch.compile(flex_attention)


def rotation(positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of rotary position embeddings (Su et al. 2021).

    Args:
        positions: (…).
        head_dim: features of a head, D / H.
        theta: longest wavelength, in positions / 2π.
        dtype: of the result; not bf16, which cannot distinguish position 256 from 257.

    Returns:
        (…, D / 2 H) each.
    """
    frequency = theta ** -(torch.arange(0, head_dim, 2, device=positions.device, dtype=dtype) / head_dim)  # (D / 2 H,)
    angle = positions[..., None] * frequency  # (…, D / 2 H)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the pairs (i, i + D / 2 H) of (B, H, T, D / H) by their positions' angles, in the angles' precision."""
    a, b = x.chunk(2, dim=-1)  # (B, H, T, D / 2 H) each
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
