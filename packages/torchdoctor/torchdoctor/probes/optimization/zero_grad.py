"""Gradients that are never zeroed."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from torchdoctor import source
from torchdoctor.findings import TRAINING, Defect, Finding, NotLookedAt, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running.graph import call_before
from torchdoctor.running.rehearsal import Watch, rehearsal_notes
from torchdoctor.running.subject import Subject
from torchdoctor.running.training import parameters_of

MISSING_ZERO_GRAD = Defect(
    "missing-zero-grad", "critical", "Every step follows the sum of all gradients since the start.", shown_by=TRAINING
)
_LEAST = 3  # steps that a finding needs


def zero_grad(subject: Subject) -> Iterator[Finding | str | NotLookedAt]:
    """Trains a few real steps: a gradient that an optimizer has used must be gone before the next one is added to it.

    Gradients that are added up before a step (accumulation), or that another network's loss leaves behind and that are
    zeroed before the own one (GANs), are not reported. If they are not, they are where they come from the round before:
    within a round, losses that share a network may add up on purpose.
    """
    yield from rehearsal_notes(subject, ZeroingWatch).look(source.definition(type(subject.model).optimizer_zero_grad))


@dataclass
class _Steps:
    """Steps of one optimizer.

    Args:
        place: the line of the first one.
        total: their number.
        stale: those that followed a gradient that had been used before.
        mixed: those that followed what the loss of another optimizer had left in the round before.
        other: the line of that loss's backward pass.
    """

    place: Place | None
    total: int = 0
    stale: int = 0
    mixed: int = 0
    other: Place | None = None


class ZeroingWatch(Watch):
    """Follows gradients from one step to the next."""

    def __init__(self, subject: Subject | None = None) -> None:
        self.line: Place | None = None  # of the latest backward pass
        self.used: dict[int, Tensor] = {}  # parameters whose gradient an optimizer has used, until it is zeroed
        self.left: dict[int, tuple[Tensor, Place | None]] = {}  # those that had one at the step of another optimizer
        self.kept: set[int] = set()  # the used ones that still had it when the latest backward pass began
        self.mixed: dict[int, Place] = {}  # those that had one from the round before, and its backward pass
        self.steps: dict[torch.optim.Optimizer, _Steps] = {}

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Puts itself before each backward pass and each step of an optimizer; the process is a copy."""
        call_before("backward", self.before_backward)
        self.hook = register_optimizer_step_pre_hook(self.before_step)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.hook.remove()  # Lightning zeroes gradients before a validation

    def before_backward(self) -> None:
        line = next(iter(source.callers(sys._getframe(1))[0]), None)
        self.used = {key: p for key, p in self.used.items() if _has_gradient(p)}
        self.left = {key: (p, other) for key, (p, other) in self.left.items() if _has_gradient(p)}
        self.kept = set(self.used)
        self.mixed = {key: other for key, (_, other) in self.left.items() if other and line and _is_below(other, line)}
        self.line = line

    def before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        steps = self.steps.get(optimizer) or _Steps(next(iter(source.callers(sys._getframe(1))[0]), None))
        self.steps[optimizer] = steps
        own = {id(p): p for p in parameters_of([optimizer]) if p.grad is not None}
        steps.total += 1
        steps.stale += bool(own.keys() & self.kept)
        mixed = [self.mixed[key] for key in own.keys() & self.mixed.keys()]
        steps.mixed += bool(mixed)
        steps.other = next(iter(mixed), steps.other)
        self.used |= own
        others = [p for p in parameters_of(self.steps) if id(p) not in own and p.grad is not None]
        self.left = {key: item for key, item in self.left.items() if key not in own}
        self.left |= {id(p): (p, self.line) for p in others if id(p) not in self.left}

    def look(self, place: Place | None = None) -> Iterator[Finding | str | NotLookedAt]:
        """What the steps mean: the first has no old gradient, and a closure's second shows in the third.

        Args:
            place: of a finding, where no line of the user's steps the optimizer.
        """
        for steps in self.steps.values():
            if steps.total < _LEAST or max(steps.stale, steps.mixed) < steps.total - 2:
                continue
            fix, values = "optimizer.zero_grad()  # before the backward pass", {"variant": "after step"}
            message = f"{steps.stale} of {steps.total} steps added their gradients to those of the step before"
            if steps.mixed > steps.stale and steps.other is not None:
                message = f"{steps.mixed} of {steps.total} steps added their gradients to those that the backward pass "
                message += f"at line {steps.other.line} had left, which is that of another optimizer's loss"
                fix = "optimizer.zero_grad()  # before its own backward pass: clears what the other one left"
                values = {}
            yield Finding(MISSING_ZERO_GRAD, steps.place or place, message, fix, values)
            return
        watched = [steps for steps in self.steps.values() if steps.total >= _LEAST]
        if self.steps and not watched:
            yield NotLookedAt(
                MISSING_ZERO_GRAD, "the training has too few steps to follow gradients from one to the next"
            )
        elif any(steps.stale for steps in watched):
            yield NotLookedAt(
                MISSING_ZERO_GRAD, "some steps add to the gradients of the step before, and others do not"
            )
        elif watched:
            yield "gradients are zeroed between steps"


PROBE = Probe(
    look=zero_grad,
    defects=(MISSING_ZERO_GRAD,),
    needs=(Need.LIGHTNING,),
    watch=ZeroingWatch,
    by_rehearsal=(MISSING_ZERO_GRAD,),
)


def _has_gradient(parameter: Tensor) -> bool:
    return parameter.grad is not None and bool(parameter.grad.any())


def _is_below(other: Place, place: Place) -> bool:
    """Whether a line is further down in the same function, so that it ran in the round before."""
    functions = source.function_at(other), source.function_at(place)
    return other.file == place.file and functions[0] is functions[1] and other.line > place.line
