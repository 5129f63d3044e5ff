"""All that the command line takes from the inside of jsonargparse and argparse, which have no public hook for it."""

import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import jsonargparse._typehints as typehints
from jsonargparse import ArgumentParser
from jsonargparse._util import import_object

from playbook.command import discovery
from playbook.command.verb import ModelVerb, own_options


def prepare() -> None:
    """Makes short names mean our classes, keeps integers whole, and refuses functions where a class is expected.

    The help stays readable as well.
    """
    _replace("resolve_class_path_by_name", _prefer_our_classes)
    _replace("adapt_partial_callable_class", _refuse_functions)
    _replace("sort_subtypes_for_union", _try_integers_first)
    # the help of an option would name every class that is imported, some 300 for a net; --X.help lists them
    typehints.ActionTypeHint.extra_help = lambda self: ""


def option_names(parser: ArgumentParser) -> list[str]:
    """Names of all options that a parser knows, dotted, without dashes."""
    names = [name.removeprefix("--").removesuffix("+") for name in parser._option_string_actions if name[:2] == "--"]
    return sorted({name for name in names if not name.endswith(".help")})


def add_verb_arguments(parser: ArgumentParser, verb: ModelVerb) -> list[str]:
    """Adds the options of a verb: the parameters of its `run`; one that is false unless given needs no value."""
    options = own_options(verb)
    flags = {name: text for name, value, text in options if not value}
    for name, text in flags.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    parser.add_method_arguments(type(verb), "run", as_group=False, skip={"session", *flags})
    return [name for name, _, _ in options]


def class_of(class_path: str) -> Any:
    """Imports what a class path names."""
    return import_object(class_path)


def _replace(name: str, make: Callable[[Callable], Callable]) -> None:
    original = getattr(typehints, name)
    if not hasattr(original, "playbook"):
        replacement: Any = make(original)
        replacement.playbook = True  # marks the function as replaced
        setattr(typehints, name, replacement)


def _prefer_our_classes(original: Callable) -> Callable:
    """Lets a short name mean our class before any other of that name, importing no more than the one chosen.

    jsonargparse knows the imported classes only, and finds `MLP` in torchvision as well.
    """

    def resolve(cls: Any, name: str) -> str:
        paths = discovery.class_paths(name) if isinstance(name, str) and "." not in name else []
        fitting = [path for path in paths if _is_subclass(path, cls)]
        return (fitting or paths)[0] if paths else original(cls, name)

    return resolve


def _refuse_functions(original: Callable) -> Callable:
    """Takes classes alone for a class_path with init_args where an option is a callable.

    jsonargparse would call a function at once, with the arguments that stand there, whatever it returns: an optimizer
    of `{class_path: os.system, init_args: {command: …}}` runs the command (4.53).
    """

    def adapt(callable_type: Any, spec: Any) -> Any:
        adapted, skipped = original(callable_type, spec)
        if not inspect.isclass(import_object(adapted["class_path"])):
            raise ImportError(f"Expected '{adapted['class_path']}' to be a class.")
        return adapted, skipped

    return adapt


def _try_integers_first(original: Callable) -> Callable:
    """Takes a number for an integer, if it is one, before it is taken for a float.

    The order in the annotation says nothing: typing returns an equal union made before, in that one's order. After an
    import of Lightning's Fabric, `Optional[Union[int, float]]` of the Trainer may be `float | int | None`, and
    `limit_train_batches: 1` would be all batches in place of one (torch 2.11).
    """

    def ordered(subtypes: Sequence[Any], *context: Any) -> list[Any]:
        subtypes = list(original(subtypes, *context))
        if int in subtypes and float in subtypes and subtypes.index(float) < subtypes.index(int):
            subtypes.remove(int)
            subtypes.insert(subtypes.index(float), int)
        return subtypes

    return ordered


def _is_subclass(path: str, cls: Any) -> bool:
    module, _, name = path.rpartition(".")
    candidate = getattr(import_module(module), name)
    bases = cls if isinstance(cls, tuple) else (cls,)
    return any(isinstance(base, type) and issubclass(candidate, base) for base in bases)
