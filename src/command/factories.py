"""What a configuration may make a callable of, where it may come from a stranger's checkpoint."""

import inspect
from typing import Any

import jsonargparse._typehints as typehints
from jsonargparse._util import import_object


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
