"""Gradients that are never set back to zero."""

import sys
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from playbook.doctor import source
from playbook.doctor.findings import TRAINING, Defect, Finding, Place
from playbook.doctor.graph import call_before
from playbook.doctor.subject import Subject, Watch

MISSING_ZERO_GRAD = Defect(
    "missing-zero-grad", "critical", "Every step follows the sum of all gradients since the start.", shown_by=TRAINING
)
DEFECTS = (MISSING_ZERO_GRAD,)


def zero_grad(subject: Subject) -> Iterator[Finding | str]:
    """Trains a few real steps: a gradient that an optimizer has used must be gone before the next one is added to it.

    Gradients that are added up before a step (accumulation), or that another network's loss leaves behind and that are
    zeroed before the own one (GANs), are not reported.
    """
    watch = subject.watch(_Watch)
    if not watch.counts:
        return
    steps, stale = max(watch.counts.values(), key=lambda counts: counts[1])
    if steps < 3 or stale < steps - 2:  # the first step has none before it; a closure's second shows in the third
        yield "gradients are zeroed between steps"
        return
    message = f"{stale} of {steps} steps added their gradients to those of the step before"
    place = watch.place or source.definition(type(subject.model).optimizer_zero_grad)
    yield Finding(MISSING_ZERO_GRAD, place, message, "optimizer.zero_grad()  # before self.manual_backward(loss)")


class _Watch(Watch):
    def __init__(self, subject: Subject | None = None) -> None:
        self.used: dict[int, Tensor] = {}  # parameters whose gradient an optimizer has used, until it is zeroed
        self.kept: set[int] = set()  # those that still had it when the next backward began
        self.counts: dict[int, tuple[int, int]] = {}  # of each optimizer: its steps, those with an old gradient
        self.place: Place | None = None

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Puts itself before each backward pass and each step of an optimizer; the process is a copy."""
        call_before("backward", self.before_backward)
        self.hook = register_optimizer_step_pre_hook(self.before_step)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.hook.remove()  # Lightning zeroes gradients before a validation

    def before_backward(self) -> None:
        for key, parameter in list(self.used.items()):
            if parameter.grad is None or not parameter.grad.any():
                del self.used[key]
        self.kept = set(self.used)

    def before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        own = {id(p): p for group in optimizer.param_groups for p in group["params"] if p.grad is not None}
        steps, stale = self.counts.get(id(optimizer), (0, 0))
        self.counts[id(optimizer)] = steps + 1, stale + bool(own.keys() & self.kept)
        self.used |= own
        places, _ = source.callers(sys._getframe(1))
        self.place = self.place or next(iter(places), None)


WATCH = _Watch
