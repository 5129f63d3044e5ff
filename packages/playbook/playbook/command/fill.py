"""Fills the options that a configuration leaves out with the values of the data."""

from collections.abc import Mapping
from typing import Any

from jsonargparse import Namespace

from playbook.command.parser import class_of
from playbook.errors import UserError
from playbook.from_data import contradiction, is_filled, is_net_class, parameters_of


def fill(
    part: Namespace, given: Namespace | None, values: Mapping[str, Any], checks: bool, path: str = "model"
) -> dict[str, Any]:
    """Sets options of a module, and of the modules among its arguments, that nobody gave and that the data knows.

    Args:
        part: of the configuration: class_path and init_args, which are changed.
        given: the same part without defaults.
        values: of the data by the names of options.
        checks: whether values that are given must agree with those.
        path: dotted name of the part.

    Returns:
        What was filled, by the names of options.

    Raises:
        UserError: a value that is given contradicts the data.
    """
    arguments, given_arguments = part.get("init_args"), _arguments_of(given)
    if not isinstance(arguments, Namespace) or not is_net_class(cls := class_of(part.class_path)):
        return {}
    filled: dict[str, Any] = {}
    parameters = parameters_of(cls)
    for name, value in list(arguments.items(branches=True, nested=False)):
        if isinstance(value, Namespace) and "class_path" in value:
            filled |= fill(value, given_arguments.get(name), values, checks, f"{path}.{name}")
        elif name not in given_arguments:
            if is_filled(name, parameters.get(name), values):
                arguments[name] = filled[name] = values[name]
        elif checks and (text := contradiction(name, value, values)) is not None:
            raise UserError(f"--{path}.{name}: {text}")
    return filled


def _arguments_of(part: Any) -> Namespace:
    arguments = part.get("init_args") if isinstance(part, Namespace) else None
    return arguments if isinstance(arguments, Namespace) else Namespace()
