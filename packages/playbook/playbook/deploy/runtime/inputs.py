"""Checks the inputs of a program by the manifest: names, types, shapes and values. Some engines check none of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .errors import InputError, shorten

Spec = Mapping[str, Any]  # name, dtype, and a shape of numbers and names of dimensions


def array_of(value: Any, spec: Spec) -> np.ndarray:
    """An array as it is, or numbers and nested lists in the type of an input.

    Raises:
        InputError: lists of different lengths, or values that the type cannot represent.
    """
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    wanted = np.dtype(spec["dtype"])
    try:
        plain = np.asarray(value)
        allowed = {"b": "b", "i": "iu", "u": "iu", "f": "fiu"}.get(wanted.kind, "")
        if plain.size and plain.dtype.kind not in allowed:
            raise InputError(f"{spec['name']}: expected {wanted} values, got {shorten(value)}")
        limits = np.iinfo(wanted) if wanted.kind in "iu" else None
        if limits is not None and plain.size and not limits.min <= plain.min() <= plain.max() <= limits.max:
            raise InputError(f"{spec['name']}: expected numbers from {limits.min} to {limits.max}")
        with np.errstate(over="ignore"):  # becomes infinite, which is refused
            return plain.astype(wanted)
    except InputError:
        raise
    except (ValueError, OverflowError, TypeError) as error:
        text = f"{spec['name']}: expected lists of numbers of equal lengths: {error}"
        raise InputError(text) from error


def check_inputs(
    inputs: Mapping[str, np.ndarray],
    specs: Mapping[str, Spec],
    dims: Mapping[str, Sequence[int | None]],
    is_batch: bool = True,
) -> dict[str, np.ndarray]:
    """The inputs in the manifest's order and types.

    Args:
        inputs: arrays by name, with the dimension B.
        specs: of the manifest, by name.
        dims: smallest and largest size of each named dimension; None for no limit.
        is_batch: whether the size of the batch counts too.

    Raises:
        InputError: a name is missing or unknown, a type cannot be cast safely, a size is out of range or differs
            between inputs, or a value is not finite.
    """
    for name in inputs:
        if name not in specs:
            raise InputError(f"{name}: unknown input; expected {', '.join(specs)}")
    sizes: dict[str, tuple[str, int]] = {}  # of named dimensions, with the input that had it first
    checked = {}
    for name, spec in specs.items():
        if name not in inputs:
            raise InputError(f"{name}: missing; expected {', '.join(specs)}")
        value, wanted = np.asarray(inputs[name]), np.dtype(spec["dtype"])
        if not np.can_cast(value.dtype, wanted, "safe"):
            raise InputError(f"{name}: expected {wanted}, got {value.dtype}")
        _check_shape(name, value.shape, spec["shape"], dims, sizes, is_batch)
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise InputError(f"{name}: has values that are not finite")
        checked[name] = value.astype(wanted, copy=False)
    return checked


def _check_shape(
    name: str,
    shape: tuple[int, ...],
    expected: Sequence[int | str],
    dims: Mapping[str, Sequence[int | None]],
    sizes: dict[str, tuple[str, int]],
    is_batch: bool,
) -> None:
    if not is_batch:
        shape, expected = shape[1:], expected[1:]
    written = f"({', '.join(map(str, expected))}){'' if is_batch else ' for one sample'}"
    if len(shape) != len(expected):
        raise InputError(f"{name}: expected shape {written}, got {shape}")
    for size, wanted in zip(shape, expected, strict=True):
        if isinstance(wanted, int):
            if size != wanted:
                raise InputError(f"{name}: expected shape {written}, got {shape}")
            continue
        low, high = (*dims.get(wanted, ()), None, None)[:2]
        low = 1 if low is None else low
        if size < low or (high is not None and size > high):
            limits = f"at least {low}" if high is None else f"{low} to {high}"
            raise InputError(f"{name}: expected {wanted} of {limits}, got {size} in the shape {shape}")
        first, former = sizes.setdefault(wanted, (name, size))
        if former != size:
            raise InputError(f"{name}: expected {wanted} of {former} as in {first}, got {size} in the shape {shape}")
