"""Errors that steps catch and ignore."""

import ast
from collections.abc import Iterator
from contextlib import nullcontext

from torch import nn

from torchdoctor import source
from torchdoctor.findings import Defect, Evidence, Finding, NotLookedAt, Place
from torchdoctor.probe import Probe
from torchdoctor.running.record import Op, Record
from torchdoctor.running.steps import Step
from torchdoctor.running.subject import Subject

SWALLOWED_ERROR = Defect(
    "swallowed-error",
    "warning",
    "Failures pass unseen: steps are lost and nobody is told.",
    section="Code quality",
    shown_by=Evidence("experiment", "an error was raised inside the step, and did not come out"),
)


class _InjectedError(RuntimeError):
    """Raised in the middle of a step; whoever catches this catches anything."""


class _Fail(Record):
    """Raises at the first call of torch that comes from these lines."""

    def __init__(self, file: str, lines: range) -> None:
        super().__init__()
        self.file, self.lines = file, lines
        self.has_raised = False

    def before(self, op: Op) -> None:
        if _is_within(op, self.file, self.lines):
            self.has_raised = True
            raise _InjectedError


def swallowed_error(subject: Subject) -> Iterator[Finding | str | NotLookedAt]:
    """Injects an error into each broad `try … except` and `suppress(Exception)` that a step runs.

    It is raised in the place of the first call of torch there, and must come out of the step. What is guarded beside
    the model's layers and the loss, as a text that is printed, may be lost.
    """
    is_swallowed, untried = False, False
    for name, training in (("training_step", True), ("validation_step", False))[: 1 + subject.validates]:
        batch = (subject.batches if training else subject.val_batches)[0]
        recorded = subject.attempt(training=training)
        matters = _matters(recorded)
        for place, lines in _catchers(recorded.record):
            if not any(_is_within(op, place.file, lines) for op in matters):
                continue
            with nullcontext() if training else subject.evaluating(), _Fail(place.file, lines) as injected:
                step = subject.record(batch, training)
            untried |= not injected.has_raised
            if injected.has_raised and step.error is None:
                is_swallowed = True
                message = f"an error raised among the calls of {name} that this guards does not come out of it"
                fix = "# remove the try, or name the one error that can happen: except torch.cuda.OutOfMemoryError:"
                yield Finding(SWALLOWED_ERROR, place, message, fix)
                break
    if untried:
        yield NotLookedAt(SWALLOWED_ERROR, "a step does not come to what a broad `except` guards a second time")
    elif not is_swallowed:
        yield "errors inside the steps come out of them"


PROBE = Probe(look=swallowed_error, defects=(SWALLOWED_ERROR,), is_light=True)


def _matters(step: Step) -> list[Op]:
    """The calls that the loss is made of, and those with weights."""
    kin = step.record.ancestors(step.loss) if step.loss is not None else set()
    return [
        op for op in step.record.ops if id(op.out) in kin or any(isinstance(item, nn.Parameter) for item in op.inputs)
    ]


def _is_within(op: Op, file: str, lines: range) -> bool:
    return any(place.file == file and place.line in lines for place in op.places)


def _catchers(record: Record) -> Iterator[tuple[Place, range]]:
    """Broad handlers around the lines of a step, and the lines that they guard."""
    for file in dict.fromkeys(place.file for op in record.ops for place in op.places):
        for node in ast.walk(source.tree(file)):
            line = _broad_line(node)
            if line is not None and isinstance(node, ast.Try | ast.With):
                yield Place(file, line), range(node.body[0].lineno, (node.body[-1].end_lineno or 0) + 1)


def _broad_line(node: ast.AST) -> int | None:
    if isinstance(node, ast.Try):
        broad = [item for item in node.handlers if item.type is None or "Exception" in ast.unparse(item.type)]
        return broad[0].lineno if broad else None
    if isinstance(node, ast.With):
        texts = [ast.unparse(item.context_expr) for item in node.items]
        return node.lineno if any("suppress(" in text and "Exception" in text for text in texts) else None
    return None
