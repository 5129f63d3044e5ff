"""Hyperparameters as plain values, which a checkpoint can hold and loading it need not run code for."""

import argparse
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import os
import re
import types
import uuid
from collections.abc import Mapping, Sequence, Set
from typing import Any, cast

import numpy as np
import torch
from jsonargparse import Namespace
from torch import Tensor, nn

from playbook.errors import UserError

KEYS = {"hyper_parameters": "model", "datamodule_hyper_parameters": "data"}  # of a checkpoint, and whose they are
CONTAINER = "hparams_type"  # of a checkpoint: the class of hyperparameters that were no dict, which could run code
PLAIN = (type(None), bool, int, float, str, bytes)
CONTAINERS = (dict, list, tuple, set, frozenset)
AS_TEXT = (torch.dtype, torch.device, torch.layout, uuid.UUID, decimal.Decimal, fractions.Fraction, datetime.timedelta)
NAMESPACES = (argparse.Namespace, types.SimpleNamespace, Namespace)


def pack_hyperparameters(checkpoint: dict[str, Any]) -> None:
    """Replaces the hyperparameters in a checkpoint by their plain equivalents.

    Raises:
        UserError: a value has none; the message names it.
    """
    for key, section in KEYS.items():
        if key in checkpoint:
            checkpoint[key] = plain_values(checkpoint[key], section)
    checkpoint.pop(CONTAINER, None)


def plain_values(hyperparameters: Mapping[str, Any], section: str) -> dict[str, Any]:
    """The plain equivalents of hyperparameters, by name.

    A path is its text, an enum its name, a number of NumPy or torch a number, a function or a class its import path; a
    set is a list, a dataclass or another mapping a dict. Arrays are lists, tensors stay tensors. A module is left out:
    its weights are saved, and `load_from_checkpoint` takes it as an argument.

    Args:
        hyperparameters: of a model or a data module.
        section: model or data, for messages.

    Raises:
        UserError: a value has no plain equivalent; the message names it.
    """
    values = {name: value for name, value in hyperparameters.items() if not isinstance(value, nn.Module)}
    return {name: _plain(value, name, section) for name, value in values.items()}


def _plain(value: Any, key: str, section: str) -> Any:
    kind = type(value)
    # what is in a container is looked at, although libraries such as PyTorch Geometric declare list and dict safe
    if kind in PLAIN or (kind not in CONTAINERS and kind in torch.serialization.get_safe_globals()):
        return value
    if isinstance(value, np.ndarray | np.generic) or (isinstance(value, Tensor) and value.ndim == 0):
        return _plain(value.tolist(), key, section)  # of one number, that number
    if isinstance(value, Tensor):
        return value.detach()
    if (text := _text(value)) is not None:
        return text
    for base in (str, bytes, int, float):  # a class of its own that is one, such as a scalar of a YAML library
        if isinstance(value, base):
            return base(value)  # type: ignore[arg-type]  # each of its own kind
    if (entries := _entries(value)) is not None:
        parts = ((name, f"{key}.{name}", entry) for name, entry in entries.items())
        return {_plain(name, place, section): _plain(entry, place, section) for name, place, entry in parts}
    if isinstance(value, Sequence | Set):
        values = [_plain(part, f"{key}[{i}]", section) for i, part in enumerate(value)]
        return tuple(values) if type(value) is tuple else sorted(values, key=repr) if isinstance(value, Set) else values
    if (path := _import_path(value)) is not None:
        return path
    name = re.split(r"[.\[]", key)[0]
    raise UserError(
        f"--{section}: hyperparameter {key}: a checkpoint cannot hold a {kind.__module__}.{kind.__qualname__}; "
        "expected plain values, paths, enums, dataclasses, or functions and classes with an import path; leave it out "
        f'with save_hyperparameters(ignore=["{name}"])'
    )


def _text(value: Any) -> str | None:
    """The name or the text of what is written as such."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value) if isinstance(value, AS_TEXT) else None


def _entries(value: Any) -> Mapping[Any, Any] | None:
    """What is in a mapping, or in an object that is one by another name."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, NAMESPACES):
        return vars(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    for name in ("_asdict", "model_dump"):  # of a named tuple, of pydantic
        if callable(method := getattr(type(value), name, None)):
            return cast("Mapping[Any, Any]", method(value))
    if isinstance(value, functools.partial) and (path := _import_path(value.func)) is not None:
        return {"class_path": path, "init_args": value.keywords} | ({"args": value.args} if value.args else {})
    return None


def _import_path(value: Any) -> str | None:
    """Where a function or a class is imported from; None for what is neither, or has no such place."""
    name = getattr(value, "__qualname__", None)
    module = getattr(value, "__module__", None)
    if name is None or module is None or not callable(value) or "<" in name:
        return None
    if isinstance(owner := getattr(value, "__self__", None), type):  # a class method
        return f"{owner.__module__}.{owner.__qualname__}.{value.__name__}"
    if isinstance(value, types.MethodType):  # of an object
        return None
    return f"{module}.{name}"
