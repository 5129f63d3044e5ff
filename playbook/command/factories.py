"""What jsonargparse makes of a configuration, where that is not what is wanted."""

import inspect
from enum import Enum
from pathlib import Path
from typing import Any

import jsonargparse._typehints as typehints
from jsonargparse import Namespace
from jsonargparse._util import import_object

from playbook.command.arguments import Invocation

PLAIN = str | bytes | int | float | dict | list | tuple | set | Path | Enum | None  # what YAML holds, or stands for


def refuse_functions() -> None:
    """Has jsonargparse take classes alone for a class_path with init_args where an option is a callable.

    It would call a function at once, with the arguments that stand there, whatever it returns: an optimizer of
    `{class_path: os.system, init_args: {command: …}}` runs the command (4.53). There is no public hook.
    """
    original = typehints.adapt_partial_callable_class
    if hasattr(original, "playbook"):
        return

    def adapt(callable_type: Any, spec: Any) -> Any:
        adapted, skipped = original(callable_type, spec)
        if not inspect.isclass(import_object(adapted["class_path"])):
            raise ImportError(f"Expected '{adapted['class_path']}' to be a class.")
        return adapted, skipped

    adapt.playbook = True  # marks the function as replaced
    typehints.adapt_partial_callable_class = adapt


def keep_own_defaults(part: Namespace | None, name: str, invocation: Invocation) -> None:
    """Leaves out arguments that nobody gave and whose default no configuration can hold.

    jsonargparse would hand a dict to the class in place of a dataclass with an array in it (4.53).

    Args:
        part: of the configuration, with class_path and init_args.
        name: of that part: model or data.
        invocation: the command, which knows what was given.
    """
    arguments = part.get("init_args") if part is not None else None
    if not isinstance(arguments, Namespace) or invocation.inline:
        return
    assert part is not None
    made: Any = import_object(part.class_path)
    for key, parameter in inspect.signature(made).parameters.items():
        default, value = parameter.default, arguments.get(key)
        is_plain = isinstance(default, PLAIN) or inspect.isclass(default) or inspect.isroutine(default)
        if is_plain or value is None or (isinstance(value, Namespace | dict) and "class_path" in value):
            continue
        options = (f"--{name}.{key}", f"--{name}.init_args.{key}")
        if not invocation.where(f"{name}.{key}") and not any(arg.startswith(options) for arg in invocation.given):
            del arguments[key]
