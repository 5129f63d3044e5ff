"""Which options of a configuration differ from the defaults of their classes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from enum import Enum
from inspect import Parameter
from pathlib import Path
from pydoc import locate
from typing import Any

import lightning.pytorch as pl

from playbook.from_data import parameters_of
from playbook.insight.report.blocks import Block, Table
from playbook.training.resume.checkpoint import Checkpoint

LONGEST = 120  # characters of a value
HOLDERS: dict[str, Callable[..., Any]] = {"trainer": pl.Trainer, "checkpoint": Checkpoint}  # sections of one class
OWN = {"trainer": {"enable_model_summary": (False,), "logger": (None, False)}}  # defaults of the command line
SEED = 0  # likewise
REQUIRED = "required"


def blocks(config: Mapping[str, Any]) -> list[Block]:
    """A table of the options that were set otherwise than their defaults, whoever set them: a recipe or the data.

    Args:
        config: of a run, with the sections of its config.yaml; empty for a training from Python.
    """
    rows = [
        {"option": name, "value": _words(value), "default": default}
        for section, value in config.items()
        for name, value, default in _of_section(section, value)
    ]
    return [Table("Options that differ from their defaults", rows)] if rows else []


def _of_section(section: str, value: Any) -> Iterator[tuple[str, Any, str]]:
    if section in HOLDERS and isinstance(value, Mapping):
        yield from _of_arguments(section, HOLDERS[section], value, OWN.get(section, {}))
    elif section == "seed_everything":
        if value != SEED:
            yield section, value, str(SEED)
    elif value is not None:
        yield from _of_value(section, value, "")


def _of_arguments(
    name: str, build_part: Any, arguments: Mapping[str, Any], own: Mapping[str, tuple[Any, ...]]
) -> Iterator[tuple[str, Any, str]]:
    """Option, value and default in words of each argument that has another value."""
    parameters = parameters_of(build_part) if callable(build_part) else {}
    for key, value in arguments.items():
        parameter = parameters.get(key)
        default = Parameter.empty if parameter is None else parameter.default
        if value in own.get(key, ()):
            continue
        if default is Parameter.empty:  # of an option that goes into **kwargs, there may be a default deep inside
            is_required = parameter is not None and parameter.kind is not Parameter.VAR_KEYWORD
            yield from _of_value(f"{name}.{key}", value, REQUIRED if is_required else "unknown")
        elif _plain(value) != _plain(default):
            yield from _of_value(f"{name}.{key}", value, _words(default))


def _of_value(name: str, value: Any, default: str) -> Iterator[tuple[str, Any, str]]:
    """A value that is no default: of a class, its name and its own options; of a list of such, each of them."""
    if isinstance(value, Mapping) and "class_path" in value:
        yield name, value["class_path"], default
        yield from _of_arguments(name, locate(str(value["class_path"])), value.get("init_args") or {}, {})
    elif isinstance(value, list) and any(isinstance(entry, Mapping) and "class_path" in entry for entry in value):
        yield name, [_short(entry.get("class_path", "")) for entry in value if isinstance(entry, Mapping)], default
        for entry in value:
            if isinstance(entry, Mapping) and "class_path" in entry:
                inner = f"{name}.{_short(entry['class_path'])}"
                yield from _of_arguments(inner, locate(str(entry["class_path"])), entry.get("init_args") or {}, {})
    else:
        yield name, value, default


def _plain(value: Any) -> Any:
    """A default as a configuration holds it."""
    if isinstance(value, Enum):
        return value.name
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(entry) for entry in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return f"{value.__module__}.{value.__qualname__}"
    return value


def _words(value: Any) -> str:
    plain_value = _plain(value)
    if plain_value is None:
        return "none"
    if isinstance(plain_value, bool):
        return str(plain_value).lower()
    text = ", ".join(map(str, plain_value)) if isinstance(plain_value, list) else str(plain_value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def _short(class_path: Any) -> str:
    return str(class_path).rpartition(".")[2]
