"""Counts the samples of a batch, names its inputs, and splits batches."""

from collections.abc import Mapping
from inspect import signature
from itertools import pairwise
from typing import Any

from torch import Tensor, nn


def num_samples(batch: Any) -> int:
    """Samples of a batch: rows of its first tensor, entries of its first list if it has no tensor, 0 if unknown."""
    if isinstance(batch, Tensor):
        return batch.shape[0] if batch.ndim else 0  # len(batch) takes ten times as long
    fields = _fields(batch)
    tensors = [field for field in fields if isinstance(field, Tensor) and field.ndim]
    if tensors:
        return tensors[0].shape[0]
    sizes = [len(field) if isinstance(field, list | tuple) else num_samples(field) for field in fields]
    return next((size for size in sizes if size), 0)


def _fields(batch: Any) -> list[Any]:
    return list(batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else [])


def named_inputs(module: nn.Module, batch: Any) -> dict[str, Tensor]:
    """Inputs of a module by name: the first entry of a batch, or the batch itself if it is no tuple or list.

    Raises:
        ValueError: they are neither a tensor nor a dict of tensors.
    """
    inputs = batch[0] if isinstance(batch, list | tuple) else batch
    if isinstance(inputs, Tensor):
        return {next(iter(signature(module.forward).parameters)): inputs}
    if isinstance(inputs, Mapping) and all(isinstance(value, Tensor) for value in inputs.values()):
        return dict(inputs)
    raise ValueError(f"expected inputs that are a tensor or a dict of tensors, got {type(inputs).__name__}")


def split(batch: Any, num_parts: int) -> list[tuple[float, Any]]:
    """The batch in parts of nearly equal size, each with its share of the samples."""
    num_parts = min(num_parts, num_samples(batch)) if num_parts > 1 else 1
    if num_parts <= 1:
        return [(1.0, batch)]
    size = num_samples(batch)
    ends = [size * number // num_parts for number in range(num_parts + 1)]
    return [((end - start) / size, _cut(batch, slice(start, end), size)) for start, end in pairwise(ends)]


def _cut(batch: Any, part: slice, size: int) -> Any:
    """The same samples of every tensor, and of every list with an entry a sample."""
    # lists alone are of samples, as in detection; beside a tensor, a list of tensors (B, …) is several inputs
    lists_alone = not any(isinstance(field, Tensor) for field in _fields(batch))

    def cut(value: Any, is_field: bool = True) -> Any:
        if isinstance(value, Tensor):
            return value[part] if value.ndim and len(value) == size else value
        if isinstance(value, Mapping):
            named = {name: cut(entry) for name, entry in value.items()}
            return named if type(value) is dict else type(value)(named)  # type: ignore[call-arg]  # as BatchEncoding
        if not isinstance(value, list | tuple):
            return value
        inputs = not lists_alone and all(isinstance(entry, Tensor) and num_samples(entry) == size for entry in value)
        if is_field and len(value) == size and not inputs:
            return value[part]
        entries = [cut(entry) for entry in value]
        return type(value)(*entries) if hasattr(value, "_fields") else type(value)(entries)

    return cut(batch, is_field=False)
