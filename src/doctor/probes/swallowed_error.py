"""Errors that the steps catch and forget."""

import ast
from collections.abc import Iterator
from typing import Any

from torch import nn

from src.doctor import source
from src.doctor.findings import Finding, Place
from src.doctor.subject import Subject

IDS = ("swallowed-error",)
LIGHT = True


class _InjectedError(RuntimeError):
    """Raised in the middle of a step; whoever catches this catches anything."""


def swallowed_error(subject: Subject) -> Iterator[Finding | str]:
    """Injects an error into the first module that a step calls; it must come out of the step."""
    steps = [("training_step", subject.train, subject.batches)]
    if subject.validates:
        steps.append(("validation_step", subject.validate, subject.val_batches))
    swallowed = False
    for name, step, batches in steps:
        if batches and _is_swallowed(subject, step, batches[0]):
            swallowed = True
            place = _handler(subject, name)
            message = f"an error raised inside the model does not come out of {name}"
            fix = "# remove the try, or name the one error that can happen: except torch.cuda.OutOfMemoryError:"
            yield Finding("swallowed-error", place, message, fix)
    if not swallowed:
        yield "errors inside the steps come out of them"


def _is_swallowed(subject: Subject, step: Any, batch: Any) -> bool:
    called = []

    def fail(module: nn.Module, args: Any) -> None:
        if module is not subject.model and next(module.parameters(), None) is not None:
            called.append(module)
            raise _InjectedError

    hook = nn.modules.module.register_module_forward_pre_hook(fail)
    try:
        step(batch)
    except _InjectedError:
        return False
    except Exception:
        return False
    finally:
        hook.remove()
    return bool(called)


def _handler(subject: Subject, step: str) -> Place | None:
    """The broad `except` of the step, or of another method of its class."""
    functions = [getattr(type(subject.model), step), *source.classes_of(subject.model)]
    for place, node in source.statements(*functions):
        if isinstance(node, ast.ExceptHandler) and (node.type is None or "Exception" in ast.unparse(node.type)):
            return place
    return source.definition(functions[0])
