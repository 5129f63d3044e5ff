"""Options of nets and tasks that take their values from the data."""

import inspect
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from inspect import Parameter
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import numpy as np
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor, nn

from playbook.errors import UserError
from playbook.facts import facts_of, named
from playbook.processes import is_started_by_lightning, one_at_a_time

ROOM = ("vocab_size", "context_length", "max_length")  # options that may exceed the data's value
LONGEST = 40  # characters of a value in a line
Built = TypeVar("Built")


def option_values(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Values of options by name: the facts of the data, and what follows from them.

    Args:
        facts: plain values. The number of `classes` is `num_classes`; an `image_shape` (C, H, W) sets `in_channels`,
            `image_size` (one number if H = W) and `num_features` (C · H · W); `context_length` is also `max_length`.
    """
    values = dict(facts)
    if classes := facts.get("classes"):
        values["num_classes"] = len(classes)
    if shape := facts.get("image_shape"):
        channels, height, width = shape
        values["in_channels"] = channels
        values["image_size"] = height if height == width else [height, width]
        values["num_features"] = channels * height * width
    if "context_length" in facts:
        values["max_length"] = facts["context_length"]
    return values | dict(facts)


def set_up(datamodule: LightningDataModule, stage: str = "fit") -> dict[str, Any]:
    """Prepares data and sets it up for a stage, once: a Trainer that asks for the same stage next does not repeat it.

    Draws no random numbers from the global generators as the caller sees them.

    Args:
        datamodule: any data module; one without `facts` has none.
        stage: fit, validate, test or predict.

    Returns:
        Its facts, as plain values.
    """
    if isinstance(getattr(datamodule, "setup", None), _Done):
        return facts_of(datamodule)
    with isolate_rng(include_cuda=False):
        if not is_started_by_lightning():  # else the first process did it before it started this one
            with one_at_a_time():  # there is no process group yet; the second one finds what the first has prepared
                datamodule.prepare_data()
        datamodule.setup(stage)
    datamodule.setup = _Done(datamodule, stage)
    return facts_of(datamodule)


class _Done:
    """Stands for `setup` of a data module that is set up for a stage, until the next call."""

    def __init__(self, datamodule: LightningDataModule, stage: str) -> None:
        self.datamodule, self.stage = datamodule, stage

    def __call__(self, stage: str) -> None:
        set_up_again(self.datamodule)
        if stage != self.stage:
            self.datamodule.setup(stage)


def set_up_again(datamodule: LightningDataModule | None) -> None:
    """Lets the next call of `setup` run, also where the data is set up already."""
    if isinstance(getattr(datamodule, "setup", None), _Done):
        del datamodule.setup  # type: ignore[union-attr]  # the method of the class shows again


def build(task: Callable[..., Built], data: LightningDataModule, **options: Any) -> Built:
    """Builds a task whose options follow the data, as the command line does.

    `build(Classification, ImageFolder("my/images"), net=CNN)` gives the task and the net the number of classes, and
    the net the channels of the images. Sets up the data.

    Args:
        task: class of the task, or a partial of it.
        data: any data module with `facts`.
        options: of the task. A class of a net, or a partial of it, is built with the values of the data as well; of all
            options that are left out, those named like a fact take the data's value.

    Raises:
        UserError: an option contradicts the data, the task is no class, or the data no data module.
    """
    if isinstance(task, nn.Module):
        raise UserError(f"task: expected a class, got an object of {type(task).__name__}")
    if not isinstance(data, LightningDataModule):
        raise UserError(f"data: expected a data module, got {data!r:.60}")
    return _build(task, option_values(set_up(data)), options)


def _build(build_part: Callable[..., Built], values: Mapping[str, Any], options: Mapping[str, Any]) -> Built:
    bound = build_part.keywords if isinstance(build_part, partial) else {}
    given = {**bound, **options}
    for name, value in given.items():
        if is_net_class(value):
            given[name] = _build(value, values, {})
        elif (text := contradiction(name, value, values)) is not None:
            raise UserError(f"{name}: {text}")
    for name, parameter in parameters_of(build_part).items():
        if name not in given and is_filled(name, parameter, values):
            given[name] = values[name]
    return build_part(**given)


def parameters_of(build_part: Callable[..., Any]) -> dict[str, Parameter]:
    """Parameters by name; of a class, also those that its `**kwargs` hand on to a base."""
    cls = build_part.func if isinstance(build_part, partial) else build_part
    bases = [base for base in cls.__mro__ if "__init__" in vars(base)][1:] if isinstance(cls, type) else []
    parameters = _signature(build_part)
    while bases and any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()):
        parameters = {name: own for name, own in parameters.items() if own.kind is not Parameter.VAR_KEYWORD}
        parameters = _signature(bases.pop(0)) | parameters
    return parameters


def _signature(build_part: Callable[..., Any]) -> dict[str, Parameter]:
    for evaluates in (True, False):  # a type may be imported for type checkers alone
        with suppress(Exception):
            return dict(inspect.signature(build_part, eval_str=evaluates).parameters)
    return {}


def is_net_class(value: Any) -> bool:
    """Whether a value is a class of modules, or a partial of one."""
    cls = value.func if isinstance(value, partial) else value
    return isinstance(cls, type) and issubclass(cls, nn.Module)


def is_filled(name: str, parameter: Parameter | None, values: Mapping[str, Any]) -> bool:
    """Whether an option that is left out takes the data's value: it must be of its type, or like its default.

    Args:
        name: of the option.
        parameter: that it sets; None if that is not known.
        values: of the data by the names of options.
    """
    value = values.get(name)
    if value is None or parameter is None or parameter.kind is Parameter.VAR_KEYWORD:
        return value is not None
    if parameter.annotation is Parameter.empty or isinstance(parameter.annotation, str):
        # one number never becomes several
        return not (isinstance(value, list | dict | str) and isinstance(parameter.default, int | float))
    return _is_of_type(value, parameter.annotation)


def _is_of_type(value: Any, annotation: Any) -> bool:
    """Whether a plain value suits a type; True where the type is none of the usual ones."""
    origin, arguments = get_origin(annotation) or annotation, get_args(annotation)
    if origin in (Union, UnionType):
        return any(_is_of_type(value, argument) for argument in arguments if argument is not type(None))
    if origin is Literal:
        return value in arguments
    if origin in (int, float):
        return isinstance(value, int if origin is int else int | float) and not isinstance(value, bool)
    if origin in (str, bool):
        return isinstance(value, origin)
    if isinstance(value, dict):
        return origin in (Any, object, dict, Mapping)
    is_several = isinstance(origin, type) and issubclass(origin, Sequence | Set)
    return isinstance(value, list) or not is_several


def in_words(value: Any) -> str:
    """A value of the data for a line of text: a number, or what it is."""
    if isinstance(value, Tensor | np.ndarray):
        return f"{type(value).__name__} {tuple(value.shape)}"
    text = str(value)
    return text if len(text) <= LONGEST else type(value).__name__


def _is_count(value: Any) -> bool:
    entries = value if isinstance(value, list | tuple) else [value]
    return all(isinstance(entry, int) for entry in entries)


def contradiction(name: str, value: Any, values: Mapping[str, Any]) -> str | None:
    """What is wrong with a value that is given, if the data says otherwise; None if nothing is.

    A net may have room for more tokens than the data needs, no classifier at all (0 classes), one output for two
    classes, and channels that it makes of others: where those do not fit, its first layer says so.

    Args:
        name: of the option.
        value: as it is given, plain.
        values: of the data by the names of options.
    """
    expected = values.get(name)
    if expected is None or value is None or value == expected or isinstance(value, bool):
        return None
    if name == "in_channels" or (name == "num_classes" and (value == 0 or (value == 1 and expected == 2))):
        return None
    if not (_is_count(value) and _is_count(expected)) or (name in ROOM and value > expected):
        return None
    if isinstance(value, tuple) and list(value) == expected:
        return None
    names = f" ({named(values['classes'])})" if name == "num_classes" else ""
    least = "at least " if name in ROOM else ""
    return f"expected {least}{expected}, as in the data{names}, got {value}"
