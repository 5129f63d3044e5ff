"""Batches of any structure: their size, their first samples, and whether a step modifies them."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence
from torch.utils import _pytree as pytree

from torchdoctor.running.record import tensors


def num_samples(batch: Any) -> int | None:
    """The batch size B, if it is the first dimension of every tensor, and none is sparse."""
    sizes = {len(leaf) if leaf.dim() and leaf.layout == torch.strided else None for leaf in tensors(batch)}
    return sizes.pop() if len(sizes) == 1 else None


def first_samples(batch: Any, number: int) -> Any:
    """The first samples of a batch; None if it has no more than these, or its batch dimension is unclear.

    Every tensor must have B samples, except for those inside a list of B things: boxes of images, say.

    Args:
        batch: tensors, lists, tuples, dicts and dataclasses of them, nested in any way.
        number: how many samples to keep.
    """
    lists = [node for node in _nodes(batch) if isinstance(node, list | tuple)]
    lengths = {len(leaf) for leaf in tensors(batch) if leaf.dim()} | {len(node) for node in lists}
    for length in sorted((length for length in lengths if length > number), reverse=True):
        try:
            return _cut(batch, length, number)
        except ValueError:
            continue
    return None


def first_positions(batch: Any, number: int) -> Any:
    """The first positions of a batch of tokens (B, T); None if it is not longer, or holds tensors of other lengths."""
    lengths = {leaf.shape[1] for leaf in tensors(batch) if leaf.dim() > 1}
    has_tokens = any(leaf.dim() == 2 and not leaf.is_floating_point() for leaf in tensors(batch))
    if not has_tokens or len(lengths) != 1 or max(lengths) <= number:
        return None
    return pytree.tree_map_only(Tensor, lambda leaf: leaf[:, :number] if leaf.dim() > 1 else leaf, batch)


def unpack_sequences(batch: Any) -> Any:
    """The batch with packed sequences as padded tensors, one row a sample."""
    return pytree.tree_map_only(
        PackedSequence,
        lambda leaf: pad_packed_sequence(leaf, batch_first=True)[0],
        batch,
        is_leaf=lambda part: isinstance(part, PackedSequence),
    )


def _nodes(thing: Any) -> list[Any]:
    inner = _parts(thing)[0]
    return [thing, *(node for part in inner for node in _nodes(part))]


def _parts(thing: Any) -> tuple[list[Any], Any]:
    """The direct children of a container, and a function that rebuilds it from others."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        names = [field.name for field in dataclasses.fields(thing) if field.init]
        parts = [getattr(thing, name) for name in names]
        return parts, lambda new: dataclasses.replace(thing, **dict(zip(names, new, strict=True)))
    parts, spec = pytree.tree_flatten(thing, is_leaf=lambda part: part is not thing)
    alone = len(parts) == 1 and parts[0] is thing
    return ([], lambda _: thing) if alone else (parts, lambda new: pytree.tree_unflatten(new, spec))


def _cut(thing: Any, length: int, number: int) -> Any:
    if isinstance(thing, Tensor):
        if thing.dim() and len(thing) != length:
            raise ValueError
        return thing[:number] if thing.dim() else thing
    if type(thing) in (list, tuple) and len(thing) == length:
        return thing[:number]
    parts, together = _parts(thing)
    return together([_cut(part, length, number) for part in parts])


def modifies_batch(batch: Any, step: Callable[[Any], Any]) -> bool:
    """Whether a step removes or replaces entries of its batch, or writes into its tensors."""
    before, spec = pytree.tree_flatten(_entries(batch))
    copies = [leaf.clone() if isinstance(leaf, Tensor) and leaf.layout == torch.strided else None for leaf in before]
    step(batch)
    after, spec_after = pytree.tree_flatten(_entries(batch))
    return spec != spec_after or any(
        one is not other or (copy is not None and not torch.equal(copy.nan_to_num(), other.nan_to_num()))
        for one, other, copy in zip(before, after, copies, strict=True)
    )


def _entries(batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return dict(batch)
    as_dict = getattr(batch, "to_dict", None)  # as graph libraries have it
    return as_dict() if callable(as_dict) else batch
