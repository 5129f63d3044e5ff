"""Every public class lists its options flat: each with a type and a line in the docstring, none behind `**kwargs`."""

import inspect
import re
from importlib import import_module
from inspect import Parameter
from typing import Any

import pytest
from torch import nn

from playbook import Data
from playbook.command.discovery import Entry, classes

KINDS = ("data", "nets", "tasks", "callbacks")
OF_ALL_DATA = {"batch_size", "num_workers"}  # which `predict` and `find_batch_size` set


def class_of(entry: Entry) -> type:
    module, _, name = entry.path.rpartition(".")
    return getattr(import_module(module), name)


def parameters_of(cls: type) -> tuple[list[Parameter], str]:
    """Parameters of a class, and the Args of the class that defines the constructor, which it may inherit."""
    owner = next(base for base in cls.__mro__ if "__init__" in vars(base))
    if owner in (object, nn.Module):  # these take anything, to pass it on or to raise an error
        return [], ""
    sections = re.split(r"^(?=\S)", inspect.cleandoc(owner.__doc__ or ""), flags=re.MULTILINE)
    arguments = "".join(section for section in sections if section.startswith("Args:\n"))
    return list(inspect.signature(owner).parameters.values()), arguments


def faults(cls: type) -> list[str]:
    """One sentence for every parameter that is not flat, typed and documented."""
    sentences = []
    parameters, arguments = parameters_of(cls)
    for parameter in parameters:
        option = f"{cls.__module__}.{cls.__qualname__}: {parameter}"
        if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            sentences.append(f"{option}: list the options that it stands for")
            continue
        if parameter.annotation is Parameter.empty:
            sentences.append(f"{option}: has no type")
        if not re.search(rf"^    {parameter.name}: \S", arguments, re.MULTILINE):
            sentences.append(f"{option}: has no line in the docstring's Args")
    return sentences


@pytest.mark.parametrize("entry", [entry for kind in KINDS for entry in classes(kind)], ids=lambda entry: entry.path)
def test_options_are_flat_typed_and_documented(entry: Entry) -> None:
    sentences = faults(class_of(entry))
    assert not sentences, "\n".join(sentences)


@pytest.mark.parametrize("entry", classes("data"), ids=lambda entry: entry.path)
def test_every_data_module_takes_the_options_of_loading(entry: Entry) -> None:
    cls = class_of(entry)
    if not issubclass(cls, Data):
        pytest.skip("is not built on playbook's Data")
    missing = OF_ALL_DATA - {parameter.name for parameter in parameters_of(cls)[0]}
    assert not missing, f"{entry.path}: lacks {', '.join(sorted(missing))}"


class Faulty:
    """A class with a fault of each kind.

    Args:
        size: the only option without a fault.
        shape: an option without a type.
        rest: further options.

    Attributes:
        depth: which is no line of an option.
    """

    def __init__(self, size: int, shape=(), depth: int = 0, *sides: int, **rest: Any) -> None: ...


class Inheriting(Faulty):
    """A class with the constructor of its base."""


@pytest.mark.parametrize("cls", [Faulty, Inheriting])
def test_a_fault_names_class_and_parameter(cls: type) -> None:
    name = f"{__name__}.{cls.__name__}"
    assert faults(cls) == [
        f"{name}: shape=(): has no type",
        f"{name}: depth: int = 0: has no line in the docstring's Args",
        f"{name}: *sides: int: list the options that it stands for",
        f"{name}: **rest: Any: list the options that it stands for",
    ]
