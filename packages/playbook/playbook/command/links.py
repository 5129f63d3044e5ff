"""Options of the model that a recipe links to the data, as in `adj: data.adj`."""

import inspect
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import LightningDataModule

from playbook.command.annotations import is_link
from playbook.command.parser import class_of
from playbook.errors import UserError, nearest
from playbook.from_data import option_values, set_up

PLAIN = str | int | float | bool | None


def resolve(
    part: Namespace, datamodule: LightningDataModule | None, path: str = "model"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Replaces the links of a module's options by plain values; sets up the data where it must.

    Args:
        part: of the configuration: class_path and init_args, which are changed.
        datamodule: any data module: its facts and its attributes can be linked.
        path: dotted name of the part.

    Returns:
        Values that were linked, by the names of options; and by link, those that are not plain, which stay links in
        the configuration: `parser.linked` hands them over.

    Raises:
        UserError: the data has nothing of that name.
    """
    values: dict[str, Any] = {}
    objects: dict[str, Any] = {}
    arguments = part.get("init_args")
    for name, value in list(arguments.items(branches=True, nested=False)) if isinstance(arguments, Namespace) else ():
        if isinstance(value, Namespace) and "class_path" in value:
            values_below, objects_below = resolve(value, datamodule, f"{path}.{name}")
            values, objects = values | values_below, objects | objects_below
        elif is_link(value) and not _is_text(part.class_path, name, value, datamodule):
            values[name] = target = _target(value, datamodule, f"--{path}.{name}")
            if _is_plain(target):
                arguments[name] = target
            else:
                objects[value] = target
    return values, objects


def has_links(part: Namespace) -> bool:
    """Whether an option of a module, or of a module among its arguments, is a link."""
    arguments = part.get("init_args")
    entries = arguments.items(branches=True, nested=False) if isinstance(arguments, Namespace) else []
    return any(is_link(value) or (isinstance(value, Namespace) and has_links(value)) for _, value in entries)


def _target(link: str, datamodule: LightningDataModule | None, option: str) -> Any:
    name = link.removeprefix("data.")
    if datamodule is None:
        raise UserError(f"{option} {link}: there is no --data to take it from")
    if not _has(datamodule, name):
        set_up(datamodule)
    values = _values(datamodule)
    if name in values:
        return values[name]
    attributes = [entry for entry in dir(datamodule) if not entry.startswith("_")]
    if name in attributes or hasattr(datamodule, name):
        return getattr(datamodule, name)  # what fails in a property keeps its words
    close = nearest(name, [*values, *attributes])
    raise UserError(f"{option} {link}: {type(datamodule).__name__} has no fact or attribute {name}{close}")


def _values(datamodule: LightningDataModule) -> dict[str, Any]:
    facts = getattr(datamodule, "facts", None)
    return option_values(facts) if isinstance(facts, dict) else {}


def _has(datamodule: LightningDataModule, name: str) -> bool:
    try:
        return name in _values(datamodule) or getattr(datamodule, name, None) is not None
    except Exception:  # of a property that needs the setup, such as the length of a data set that is still None
        return False


def _is_text(class_path: str, name: str, value: str, datamodule: LightningDataModule | None) -> bool:
    """Whether a value that looks like a link is text for an option of text, such as the name of a file."""
    parameter = inspect.signature(class_of(class_path)).parameters.get(name)
    is_text = parameter is not None and "str" in str(parameter.annotation)
    return is_text and (datamodule is None or not _has(datamodule, value.removeprefix("data.")))


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(entry) for entry in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(entry) for key, entry in value.items())
    return isinstance(value, PLAIN)
