"""Accumulated gradients that grow with the number of batches of a step."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from torchdoctor import source
from torchdoctor.evidence.dependence import with_samples_twice
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running.batches import num_samples
from torchdoctor.running.subject import Subject

SUMMED_ACCUMULATION = Defect(
    "summed-accumulation",
    "advice",
    "The gradient grows with the number of batches: SGD goes farther, clipping cuts more, Adam alone is indifferent.",
    shown_by=Evidence("experiment", "the gradients of several batches were added up, as the source does"),
)
_BACKWARD = ("backward", "manual_backward")
_SCALING = (ast.Div, ast.Mult, ast.Pow)
_METHODS = ("div", "div_", "mul", "mul_", "true_divide", "divide")
_MEAN = (0.7, 1.4)  # times the loss, when each sample is there twice
_BATCHES, _LEAST = 4, 1.5  # that are added up; times the gradient of one


@dataclass(frozen=True)
class _Accumulation:
    """Where a program goes backward in each turn, and steps in some.

    Args:
        place: of the backward pass.
        loss: that goes backward, as the source has it.
        number: of turns for a step, likewise.
    """

    place: Place
    loss: str
    number: str


def summed_accumulation(subject: Subject) -> Iterator[Finding]:
    """Adds up gradients of means, where the source steps in every k-th turn and divides by k nowhere.

    Sums over samples or tokens are left alone: they become larger when each sample is there twice. So is a program that
    multiplies or divides anything by k, as the loss, the rate or the gradients; numbers of batches and turns, `len(…) /
    k`, `… // k` and `… % k`, do not count.
    """
    roots = [(file, source.tree(file)) for file in subject.files] if subject.script is not None else []
    roots = roots or list(filter(None, map(source.body, source.classes_of(subject.model))))
    accumulation = next((each for file, root in roots for each in _accumulations(file, root)), None)
    if accumulation is None or not _is_mean(subject):
        return
    sizes, total = [], torch.zeros(())
    for batch in subject.batches[:_BATCHES]:
        gradient = _gradient(subject, batch)
        sizes.append(float(gradient.norm()))
        total = total + gradient
    ratio = float(total.norm()) / max(1e-12, sum(sizes) / len(sizes)) if len(sizes) > 1 else 0.0
    if ratio >= _LEAST:
        number = accumulation.number
        message = f"a step adds up the gradients of {number} batches: here {len(sizes)} have {ratio:.1f} times "
        message += "the norm of one, and nothing is divided by their number"
        yield Finding(SUMMED_ACCUMULATION, accumulation.place, message, f"({accumulation.loss} / {number}).backward()")


PROBE = Probe(
    look=summed_accumulation, defects=(SUMMED_ACCUMULATION,), needs=(Need.BATCHES, Need.WEIGHTS, Need.ONE_LOSS)
)


def _accumulations(file: str, root: ast.AST) -> Iterator[_Accumulation]:
    """Loops or functions that go backward outside of the `if … % k …` in which they step and zero the gradients."""
    for around in (node for node in ast.walk(root) if isinstance(node, ast.For | ast.While | ast.FunctionDef)):
        branches = [node for node in ast.walk(around) if isinstance(node, ast.If)]
        number = next(filter(None, map(_number_of_turns, branches)), None)
        if number is None or _is_scaled_by(source.tree(file), number):
            continue
        for call in source.calls(around, *_BACKWARD):
            if isinstance(call.func, ast.Attribute):
                loss = call.args[0] if call.args else call.func.value
                yield _Accumulation(Place(file, call.lineno), ast.unparse(loss), ast.unparse(number))


def _number_of_turns(branch: ast.If) -> ast.expr | None:
    """The k of a branch for every k-th turn, if it steps and zeroes the gradients, and does not go backward."""
    body = ast.Module(branch.body, [])
    if any(source.calls(body, *_BACKWARD)) or not all(any(source.calls(body, name)) for name in ("step", "zero_grad")):
        return None
    turns = [node for node in ast.walk(branch.test) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)]
    return turns[0].right if turns else None


def _is_scaled_by(tree: ast.AST, number: ast.expr) -> bool:
    """Whether anything but a number of batches is multiplied or divided by a number."""
    text = ast.unparse(number)
    for node in ast.walk(tree):
        operands: list[ast.expr] = []
        if isinstance(node, ast.BinOp) and isinstance(node.op, _SCALING):
            operands = [] if "len(" in ast.unparse(node.left) else [node.left, node.right]
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, _SCALING):
            operands = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
            operands = node.args
        parts = [part for operand in operands for part in ast.walk(operand) if isinstance(part, ast.expr)]
        if any(ast.unparse(part) == text for part in parts):
            return True
    return False


def _is_mean(subject: Subject) -> bool:
    """Whether the loss of a batch stays about the same when each sample is there twice."""
    batch = subject.batches[0]
    if num_samples(batch) is None:
        return False
    double = with_samples_twice(batch)
    if not subject.accepts(double):
        return False
    with subject.unchanged():
        losses = [subject.backward(each).loss for each in (batch, double)]
    once, twice = (0.0 if loss is None else float(loss.detach().sum()) for loss in losses)
    return abs(once) > 1e-9 and _MEAN[0] < twice / once < _MEAN[1]


def _gradient(subject: Subject, batch: object) -> Tensor:
    """Of all weights, for one batch."""
    with subject.unchanged():
        subject.backward(batch)
        grads = [weight.grad.flatten() for weight in subject.model.parameters() if weight.grad is not None]
        return torch.cat(grads).double() if grads else torch.zeros(1, dtype=torch.double)
