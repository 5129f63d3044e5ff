"""Gradients that are never zeroed, or too early."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

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
ZEROED_BEFORE_STEP = Defect(
    "zeroed-before-step",
    "critical",
    "No step changes a weight: the model stays as it was initialised.",
    explains=("loss-not-decreasing", "learning-rate-too-low"),
    shown_by=TRAINING,
)
_LEAST = 3  # steps that a finding needs
_CLEAR = "optimizer.zero_grad()  # before its own backward pass: clears what the other one left"
_AGAINST = -0.5  # cosine of two gradients that work against each other


def zero_grad(subject: Subject) -> Iterator[Finding | str | NotLookedAt]:
    """Trains a few real steps: a gradient that an optimizer has used must be gone before the next one is added to it.

    Gradients that are added up before a step (accumulation), or that another network's loss leaves behind and that are
    zeroed before the own one (GANs), are not reported. If they are not, they are where they come from the round before,
    or point against the own one in every step, as a critic's does for its generator: within a round, losses that share
    a network may add up on purpose.

    Gradients that are zeroed between the backward pass and the step, in all steps of an optimizer, reach none of them.
    """
    yield from rehearsal_notes(subject, ZeroingWatch).look(source.definition(type(subject.model).optimizer_zero_grad))


@dataclass
class _Steps:
    """Steps of one optimizer.

    Args:
        place: the line of the first one.
        total: their number.
        with_gradient: those before or after which some weight has one.
        stale: those that followed a gradient that had been used before.
        mixed: those that followed what the loss of another optimizer had left in the round before.
        cosines: of those that followed what it had left in the same round, between that gradient and the own one.
        other: the line of that loss's backward pass.
        lost: those before which all gradients had been zeroed that the backward pass had given its weights.
        zeroing: the line that did so.
    """

    place: Place | None
    total: int = 0
    with_gradient: int = 0
    stale: int = 0
    mixed: int = 0
    cosines: list[float] = field(default_factory=list)
    other: Place | None = None
    lost: int = 0
    zeroing: Place | None = None

    @property
    def is_opposed(self) -> bool:
        """Whether the gradients of both losses point against each other in all steps."""
        return len(self.cosines) >= self.total - 1 and max(self.cosines, default=1.0) < _AGAINST


class ZeroingWatch(Watch):
    """Follows gradients from one step to the next."""

    def __init__(self, subject: Subject | None = None) -> None:
        self.line: Place | None = None  # of the latest backward pass
        self.used: dict[int, Tensor] = {}  # parameters whose gradient an optimizer has used, until it is zeroed
        self.left: dict[int, tuple[Tensor, Place | None]] = {}  # those that had one at the step of another optimizer
        self.gradients: dict[int, Tensor] = {}  # which these had then
        self.kept: set[int] = set()  # the used ones that still had it when the latest backward pass began
        self.mixed: dict[int, Place] = {}  # those that had one from the round before, and its backward pass
        self.steps: dict[torch.optim.Optimizer, _Steps] = {}
        self.is_stepping = False
        self.zeroed: dict[int, Place | None] = {}  # those whose gradient no optimizer had used, and the line

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Puts itself before each backward pass and each step of an optimizer; the process is a copy."""
        call_before("backward", self.before_backward)
        self.begin()
        self.hook = register_optimizer_step_pre_hook(self.before_step)

    def begin(self) -> None:
        """Takes notes of zeroed gradients in this process, for good."""
        for kind in (torch.optim.Optimizer, nn.Module):
            kind.zero_grad = self._noting(kind.zero_grad)
        register_optimizer_step_pre_hook(lambda *_: setattr(self, "is_stepping", True))
        register_optimizer_step_post_hook(self.after_step)

    def _noting(self, original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def zero_grad(owner: Any, *args: Any, **kwargs: Any) -> None:
            weights = parameters_of([owner]) if isinstance(owner, torch.optim.Optimizer) else list(owner.parameters())
            unused = [weight for weight in weights if id(weight) not in self.used and _has_gradient(weight)]
            if unused and not self.is_stepping:  # some optimizers zero gradients themselves
                line = next(iter(source.callers(sys._getframe(1))[0]), None)
                self.zeroed |= {id(weight): line for weight in unused}
            original(owner, *args, **kwargs)

        return zero_grad

    def after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.is_stepping = False
        weights = parameters_of([optimizer])
        lines = [self.zeroed.pop(id(weight)) for weight in weights if id(weight) in self.zeroed]
        has_gradient = any(map(_has_gradient, weights))
        if optimizer in self.steps:
            self.steps[optimizer].with_gradient += has_gradient
        if lines and optimizer in self.steps and not has_gradient:
            self.steps[optimizer].lost += 1
            self.steps[optimizer].zeroing = lines[0]

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
        same_round = {key: p for key, p in own.items() if key in self.left and key not in self.mixed}
        if same_round:
            steps.cosines.append(self._cosine(same_round))
            mixed = mixed or [other for key, (_, other) in self.left.items() if key in same_round and other]
        steps.other = next(iter(mixed), steps.other)
        self.used |= own
        others = [p for p in parameters_of(self.steps) if id(p) not in own and p.grad is not None]
        self.left = {key: item for key, item in self.left.items() if key not in own}
        new = [p for p in others if id(p) not in self.left]
        self.left |= {id(p): (p, self.line) for p in new}
        self.gradients |= {id(p): p.grad.detach().clone() for p in new if p.grad is not None and not p.grad.is_sparse}

    def _cosine(self, weights: dict[int, Tensor]) -> float:
        """Of the gradients that another optimizer's loss had left, and those that came since."""
        known = [(self.gradients[key], p.grad) for key, p in weights.items() if key in self.gradients]
        pairs = [(left.flatten(), (whole - left).flatten()) for left, whole in known if whole is not None]
        if not pairs:
            return 1.0
        return float(torch.cosine_similarity(*map(torch.cat, zip(*pairs, strict=True)), dim=0))

    def look(self, place: Place | None = None) -> Iterator[Finding | str | NotLookedAt]:
        """What the steps mean: the first has no old gradient, and a closure's second shows in the third.

        Args:
            place: of a finding, where no line of the user's steps the optimizer.
        """
        for steps in self.steps.values():
            if steps.total >= _LEAST and steps.lost >= steps.total:
                message = f"gradients are zeroed here after the backward pass, before each of the {steps.total} steps"
                fix = "optimizer.zero_grad()  # before the backward pass, or after the step"
                yield Finding(ZEROED_BEFORE_STEP, steps.zeroing or steps.place or place, message, fix)
                return
            if steps.total < _LEAST or (max(steps.stale, steps.mixed) < steps.total - 2 and not steps.is_opposed):
                continue
            fix, values = "optimizer.zero_grad()  # before the backward pass", {"variant": "after step"}
            message = f"{steps.stale} of {steps.total} steps added their gradients to those of the step before"
            if steps.mixed > steps.stale and steps.other is not None:
                message = f"{steps.mixed} of {steps.total} steps added their gradients to those that the backward pass "
                message += f"at line {steps.other.line} had left, which is that of another optimizer's loss"
                fix, values = _CLEAR, {}
            elif steps.is_opposed and steps.other is not None:
                message = (
                    f"{len(steps.cosines)} of {steps.total} steps added their gradients to those of the loss at line "
                    f"{steps.other.line}, which another optimizer follows: they point against each other, with a "
                    f"cosine of at most {max(steps.cosines):.2f}"
                )
                fix, values = _CLEAR, {}
            yield Finding(MISSING_ZERO_GRAD, steps.place or place, message, fix, values)
            return
        watched = [steps for steps in self.steps.values() if steps.with_gradient >= _LEAST]
        if self.steps and not watched:
            yield NotLookedAt(
                MISSING_ZERO_GRAD, "the training has too few steps with gradients to follow them from one to the next"
            )
        elif any(steps.cosines for steps in watched):
            yield NotLookedAt(
                MISSING_ZERO_GRAD, "some steps add to the gradients of another optimizer's loss, perhaps on purpose"
            )
        elif any(steps.stale for steps in watched):
            yield NotLookedAt(
                MISSING_ZERO_GRAD, "some steps add to the gradients of the step before, and others do not"
            )
        elif watched:
            yield "gradients are zeroed between steps"


PROBE = Probe(
    look=zero_grad,
    defects=(MISSING_ZERO_GRAD, ZEROED_BEFORE_STEP),
    needs=(Need.LIGHTNING,),
    watch=ZeroingWatch,
    by_rehearsal=(MISSING_ZERO_GRAD, ZEROED_BEFORE_STEP),
)


def _has_gradient(parameter: Tensor) -> bool:
    return parameter.grad is not None and bool(parameter.grad.any())


def _is_below(other: Place, place: Place) -> bool:
    """Whether a line is further down in the same function, so that it ran in the round before."""
    functions = source.function_at(other), source.function_at(place)
    return other.file == place.file and functions[0] is functions[1] and other.line > place.line
