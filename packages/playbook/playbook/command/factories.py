"""Arguments that a module calls to build its optimizer or schedule, whatever their annotation says.

A class in place of an optimizer is often annotated as if it were one, as in the layout of lightning-hydra-template:
`optimizer: torch.optim.Optimizer`, `scheduler: torch.optim.lr_scheduler`. No configuration can hold an optimizer, as it
has no parameters.
"""

import ast
import collections.abc
import inspect
import textwrap
import typing
from functools import lru_cache, partial
from types import ModuleType, UnionType
from typing import Any, Union, get_args, get_origin

from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

FACTORIES = {Optimizer: OptimizerCallable, LRScheduler: LRSchedulerCallable}
WORDS: dict[str, Any] = {"optim": OptimizerCallable, "sched": LRSchedulerCallable}  # in names of arguments
UNTYPED = (inspect.Parameter.empty, Any, object)
CALLABLES = (partial, typing.Callable, collections.abc.Callable)


def factory_type(owner: Any, name: str, annotation: Any) -> Any:
    """The type of an argument: of a factory where it is annotated as what that builds, or called; else its own.

    Args:
        owner: what is built with it; only modules have such arguments.
        name: of the argument.
        annotation: its own type, or `inspect.Parameter.empty`.
    """
    if not inspect.isclass(owner) or not issubclass(owner, nn.Module):
        return annotation
    if get_origin(annotation) in (Union, UnionType):
        members = [factory_type(owner, name, member) for member in get_args(annotation)]
        return Union[tuple(members)]  # noqa: UP007  # of a list
    if inspect.isclass(annotation):
        for base, factory in FACTORIES.items():
            if issubclass(annotation, base):
                return factory
    by_name = next((factory for word, factory in WORDS.items() if word in name.lower()), None)
    if by_name is None:
        return annotation
    if annotation in CALLABLES or get_origin(annotation) is partial:
        return by_name
    if isinstance(annotation, ModuleType):  # torch.optim.lr_scheduler, beside which a null is usual
        return by_name | None
    return by_name if annotation in UNTYPED and _is_called(owner, name) else annotation


def _is_called(owner: type, name: str) -> bool:
    """Whether a class's source calls an argument, by its own name or as an attribute or item of that name."""
    return any(
        name in _called_names(base)
        for base in owner.__mro__
        if base.__module__.partition(".")[0] not in ("torch", "lightning")
    )


@lru_cache
def _called_names(cls: type) -> set[str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return set()
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {node.id for node in functions if isinstance(node, ast.Name)}
    names |= {node.attr for node in functions if isinstance(node, ast.Attribute)}
    items = [node.slice for node in functions if isinstance(node, ast.Subscript)]
    return names | {str(node.value) for node in items if isinstance(node, ast.Constant)}
