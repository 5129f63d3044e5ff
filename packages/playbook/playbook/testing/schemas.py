"""Checks recipes by the JSON Schema, as an editor does, and makes mistakes in them."""

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft7Validator
from jsonschema.exceptions import best_match


class Yaml12(yaml.SafeLoader):
    """Reads numbers as YAML 1.2 does, and so editors: 3e-3 is one."""


NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?$")
Yaml12.add_implicit_resolver("tag:yaml.org,2002:float", NUMBER, list("-+.0123456789"))


def read(text: str | Path) -> Any:
    """A recipe; an empty one is a mapping without entries."""
    return yaml.load(text.read_text(encoding="utf-8") if isinstance(text, Path) else text, Yaml12) or {}  # noqa: S506  # a SafeLoader with fewer booleans


def complaints(schema: dict[str, Any], recipe: Any) -> list[str]:
    """What an editor underlines, with the place of each."""
    validator = Draft7Validator(schema)
    deepest = [best_match([error]) for error in validator.iter_errors(recipe)]
    return [f"{error.json_path}: {error.message[:200]}" for error in deepest if error is not None]


def mistakes(recipe: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The recipe with one name misspelt, one value of another type, or one class that does not exist, each in turn."""
    for path in list(_paths(recipe)):
        *above, key = path
        place = ".".join(map(str, path))
        holder = _at(recipe, above)
        if isinstance(key, str):
            changed = copy.deepcopy(recipe)
            _at(changed, above)[f"{key}x"] = _at(changed, above).pop(key)
            yield f"{place}: misspelt", changed
        wrong = "many" if isinstance(holder[key], int | float) else {"no": "such"}
        for value in [wrong, f"{holder[key]}x"] if key == "class_path" else [wrong]:
            changed = copy.deepcopy(recipe)
            _at(changed, above)[key] = value
            yield f"{place}: {value}", changed


def _paths(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in entries:
        yield (*above, key)
        yield from _paths(value, (*above, key))


def _at(node: Any, path: list[Any]) -> Any:
    for key in path:
        node = node[key]
    return node
