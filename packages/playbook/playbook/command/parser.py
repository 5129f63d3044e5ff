"""All that the command line takes from the inside of jsonargparse and argparse, which have no public hook for it."""

import inspect
from argparse import ArgumentError
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any

import jsonargparse._signatures as signatures
import jsonargparse._typehints as typehints
import yaml
from jsonargparse import ArgumentParser, Namespace, get_loader, set_loader
from jsonargparse._common import parser_context
from jsonargparse._util import import_object

from playbook.command import discovery
from playbook.command.annotations import is_link
from playbook.command.environment import expand_values
from playbook.command.factories import factory_type
from playbook.command.verb import ModelVerb, own_options

# what links stand for, by link, where no configuration can hold it
_objects = ContextVar[Mapping[str, Any]]("_objects", default=MappingProxyType({}))


def prepare() -> None:
    """Makes short names mean our classes, keeps integers whole, and refuses functions where a class is expected.

    Modules get factories of optimizers, and the help stays readable as well.
    """
    _replace("resolve_class_path_by_name", _prefer_our_classes)
    _replace("adapt_partial_callable_class", _refuse_functions)
    _replace("sort_subtypes_for_union", _order_types)
    _replace("adapt_typehints", _admit_links)
    _replace("adapt_class_type", _make_partials)
    _replace("get_signature_parameters", _take_factories, signatures)
    set_loader("yaml", _load, exceptions=(yaml.YAMLError,))
    # the help of an option would name every class that is imported, some 300 for a net; --X.help lists them
    typehints.ActionTypeHint.extra_help = lambda self: ""


_load_yaml = get_loader("yaml")


def _load(stream: str) -> Any:
    """YAML with what environment variables and ~ stand for."""
    return expand_values(_load_yaml(stream))


def option_names(parser: ArgumentParser) -> list[str]:
    """Names of all options that a parser knows, dotted, without dashes."""
    names = [name.removeprefix("--").removesuffix("+") for name in parser._option_string_actions if name[:2] == "--"]
    return sorted({name for name in names if not name.endswith(".help")})


def given_options(parser: ArgumentParser, args: Sequence[str]) -> Namespace:
    """Parses a command line without defaults: what somebody wrote, on it or in its configs."""
    with parser_context(lenient_check=True):
        return parser.parse_args(args, defaults=False)


def parse_with_gaps(parser: ArgumentParser, args: Sequence[str], name: str) -> tuple[Namespace, bool]:
    """Parses a command line where one option, a class, may lack required arguments.

    Returns:
        The configuration, and whether it lacks some; `require_complete` tells when it no longer does.
    """
    try:
        return parser.parse_args(args), False
    except ArgumentError as error:
        if not (str(error).startswith(f'Parser key "{name}"') and "following arguments are required" in str(error)):
            raise
        with parser_context(lenient_check=True):
            return parser.parse_args(args), True


def plain(parser: ArgumentParser, config: Namespace) -> dict[str, Any]:
    """A configuration as plain values; arguments may lack."""
    with parser_context(lenient_check=True):
        return yaml.safe_load(parser.dump(config, skip_link_targets=False, skip_unset=False, format="yaml"))


def require_complete(parser: ArgumentParser, config: Namespace) -> None:
    """Checks a configuration as the parser does.

    Raises:
        ArgumentError: a value is missing, or is not of the type of its option.
    """
    try:
        parser.validate(config)
    except (TypeError, ValueError, KeyError) as error:
        raise ArgumentError(None, str(error)) from error


def add_verb_arguments(parser: ArgumentParser, verb: ModelVerb) -> list[str]:
    """Adds the options of a verb: the parameters of its `run`; one that is false unless given needs no value."""
    options = own_options(verb)
    flags = {name: text for name, value, text in options if not value}
    for name, text in flags.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    parser.add_method_arguments(type(verb), "run", as_group=False, skip={"session", *flags})
    return [name for name, _, _ in options]


@contextmanager
def linked(objects: Mapping[str, Any]) -> Iterator[None]:
    """Has what is built in this context use objects of the data.

    Args:
        objects: by the link that stands for each in the configuration.
    """
    token = _objects.set(objects)
    try:
        yield
    finally:
        _objects.reset(token)


def class_of(class_path: str) -> Any:
    """Imports what a class path names."""
    return import_object(class_path)


def _replace(name: str, make: Callable[[Callable], Callable], module: Any = typehints) -> None:
    original = getattr(module, name)
    if not hasattr(original, "playbook"):
        replacement: Any = make(original)
        replacement.playbook = True  # marks the function as replaced
        setattr(module, name, replacement)


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


def _admit_links(original: Callable) -> Callable:
    """Takes a link to the data, such as data.adj, for a value of any type, and builds with what it stands for."""

    def adapt(value: Any, typehint: Any, *args: Any, **options: Any) -> Any:
        if not is_link(value):
            return original(value, typehint, *args, **options)
        if options.get("instantiate_classes") and value in _objects.get():
            return _objects.get()[value]
        try:
            return original(value, typehint, *args, **options)
        except ValueError:
            return value

    return adapt


def _make_partials(original: Callable) -> Callable:
    """Makes a factory the partial of its class, as it is in a script.

    jsonargparse's holds on to the parser, so it can be neither pickled nor copied, and does not show the class.
    """

    def adapt(*arguments: Any, **options: Any) -> Any:
        value = original(*arguments, **options)
        if not isinstance(value, partial):
            return value
        classes = [argument for argument in value.args if inspect.isclass(argument)]
        return partial(classes[0], **value.keywords) if len(classes) == 1 else value

    return adapt


def _take_factories(original: Callable) -> Callable:
    """Lets a module have a class in place of an optimizer or a schedule, which cannot be built without parameters."""

    def with_factories(component: Any, *arguments: Any, **options: Any) -> list[Any]:
        parameters = original(component, *arguments, **options)
        for parameter in parameters:
            parameter.annotation = factory_type(component, parameter.name, parameter.annotation)
        return parameters

    return with_factories


def _order_types(original: Callable) -> Callable:
    """Takes a number for an integer, if it is one, before it is taken for a float, and text for the name of our class.

    A strategy of the Trainer may be text or an object: `ShardedStrategy` is our class, and `ddp` is text.

    Of numbers, the order in the annotation says nothing: typing returns an equal union made before, in that one's
    order. After an import of Lightning's Fabric, `Optional[Union[int, float]]` of the Trainer may be
    `float | int | None`, and `limit_train_batches: 1` would be all batches in place of one (torch 2.11).
    """

    def ordered(subtypes: Sequence[Any], value: Any, *context: Any) -> list[Any]:
        subtypes = list(original(subtypes, value, *context))
        if str in subtypes and isinstance(value, str) and discovery.class_paths(value):
            subtypes.remove(str)
            subtypes.append(str)
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
