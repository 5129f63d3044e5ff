"""Defaults of a class that no configuration can hold, and those of a class that is no longer chosen."""

import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from playbook.command.arguments import Invocation
from playbook.command.check import slot_of
from playbook.command.parser import class_of

PLAIN = str | bytes | int | float | dict | list | tuple | set | Path | Enum | None  # what YAML holds, or stands for


def keep_own_defaults(
    part: Namespace | None, name: str, invocation: Invocation, saved: Mapping[str, Any] | None = None
) -> None:
    """Leaves out arguments that nobody gave and whose default no configuration can hold.

    jsonargparse would hand a dict to the class in place of a dataclass with an array in it (4.53).

    Args:
        part: of the configuration, with class_path and init_args.
        name: of that part: model or data.
        invocation: the command, which knows what was given.
        saved: configuration of the checkpoint, which holds what was given before.
    """
    arguments = part.get("init_args") if part is not None else None
    if not isinstance(arguments, Namespace) or invocation.inline:
        return
    assert part is not None
    cls: Any = class_of(part.class_path)
    former = ((saved or {}).get(name) or {}).get("init_args") or {}
    for key, parameter in inspect.signature(cls).parameters.items():
        default, value = parameter.default, arguments.get(key)
        if (
            _is_plain(default)
            or value is None
            or (isinstance(value, Namespace | dict) and "class_path" in value)
            or key in former
        ):
            continue
        options = (f"--{name}.{key}", f"--{name}.init_args.{key}")
        if not invocation.where(f"{name}.{key}") and not any(arg.startswith(options) for arg in invocation.given):
            del arguments[key]


def _is_plain(default: Any) -> bool:
    """Whether a configuration can hold a default, also one that is a dataclass of such values."""
    if is_dataclass(default) and not inspect.isclass(default):
        return all(_is_plain(getattr(default, field.name)) for field in fields(default))
    return isinstance(default, PLAIN) or inspect.isclass(default) or inspect.isroutine(default)


def drop_former_defaults(config: Mapping[str, Any], invocation: Invocation) -> None:
    """Leaves out defaults of the checkpoint's data where the command names other data, which has defaults of its own.

    Args:
        config: of the checkpoint; a saved configuration holds defaults as well.
        invocation: the command.
    """
    former, slot = config.get("data"), slot_of(invocation, "data")
    if not isinstance(former, dict) or slot is None or slot.signature is None:
        return
    arguments = former.get("init_args")
    if former.get("class_path") == slot.signature.class_path or not isinstance(arguments, dict):
        return
    parameters = inspect.signature(class_of(former["class_path"])).parameters
    for key in [key for key in arguments if key in parameters and parameters[key].default == arguments[key]]:
        del arguments[key]
