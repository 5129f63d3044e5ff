"""Errors that the steps catch and forget."""

import ast
from collections.abc import Iterator
from typing import Any

from torch import nn

from playbook.doctor import source
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.record import Op, Record
from playbook.doctor.subject import Subject

SWALLOWED_ERROR = Defect(
    "swallowed-error",
    "warning",
    "Failures pass unseen: steps are lost and nobody is told.",
    section="Code quality",
    shown_by=Evidence("experiment", "an error was raised inside the step, and did not come out"),
)
DEFECTS = (SWALLOWED_ERROR,)
LIGHT = True


class _InjectedError(RuntimeError):
    """Raised in the middle of a step; whoever catches this catches anything."""


def swallowed_error(subject: Subject) -> Iterator[Finding | str]:
    """Injects an error into the first module that a step calls; it must come out of the step.

    So must one in the first call of torch inside each `try` with a broad `except` and each `suppress(Exception)` of
    the user's classes.
    """
    steps = [("training_step", subject.train, subject.batches)]
    if subject.validates:
        steps.append(("validation_step", subject.validate, subject.val_batches))
    swallowed = False
    for name, step, batches in steps:
        place = _swallows(subject, name, step, batches[0]) if batches else None
        if place is not None:
            swallowed = True
            message = f"an error raised inside the model does not come out of {name}"
            fix = "# remove the try, or name the one error that can happen: except torch.cuda.OutOfMemoryError:"
            yield Finding(SWALLOWED_ERROR, place, message, fix)
    if not swallowed:
        yield "errors inside the steps come out of them"


class _Fail(Record):
    """Raises in the calls of torch that come from these lines."""

    def __init__(self, file: str, first: int, last: int) -> None:
        super().__init__()
        self.file, self.lines = file, range(first, last + 1)
        self.raised = False

    def before(self, op: Op) -> None:
        if any(place.file == self.file and place.line in self.lines for place in op.places):
            self.raised = True
            raise _InjectedError


def _swallows(subject: Subject, name: str, step: Any, batch: Any) -> Place | None:
    """The line that catches an error inside a step for good, if one does."""
    if _is_swallowed(subject, step, batch):
        return _handler(subject, name)
    classes = source.classes_in(subject.model)
    for place, node in source.statements(*classes):
        catcher = _catcher(node)
        if catcher is None:
            continue
        body = node.body  # pyright: ignore[reportAttributeAccessIssue]  # of a Try or a With
        injected = _Fail(place.file, body[0].lineno, body[-1].end_lineno or 0)
        with injected:
            ended = _ends_well(step, batch)
        if ended and injected.raised:
            return Place(place.file, catcher)
    return None


def _catcher(node: ast.AST) -> int | None:
    """The line of a broad handler."""
    if isinstance(node, ast.Try):
        broad = [
            handler for handler in node.handlers if handler.type is None or "Exception" in ast.unparse(handler.type)
        ]
        return broad[0].lineno if broad else None
    if isinstance(node, ast.With):
        texts = [ast.unparse(item.context_expr) for item in node.items]
        return node.lineno if any("suppress(" in text and "Exception" in text for text in texts) else None
    return None


def _is_swallowed(subject: Subject, step: Any, batch: Any) -> bool:
    called = []

    def fail(module: nn.Module, args: Any) -> None:
        if module is not subject.model and next(nn.Module.parameters(module), None) is not None:
            called.append(module)
            raise _InjectedError

    hook = nn.modules.module.register_module_forward_pre_hook(fail)
    try:
        return _ends_well(step, batch) and bool(called)
    finally:
        hook.remove()


def _ends_well(step: Any, batch: Any) -> bool:
    try:
        step(batch)
    except Exception:  # the injected one comes out, or another does
        return False
    return True


def _handler(subject: Subject, step: str) -> Place | None:
    """The broad `except` of the step, or of another method of its class."""
    functions = [getattr(type(subject.model), step), *source.classes_of(subject.model)]
    for place, node in source.statements(*functions):
        if isinstance(node, ast.ExceptHandler) and (node.type is None or "Exception" in ast.unparse(node.type)):
            return place
    return source.definition(functions[0])
