"""Short trainings with the user's own optimizers, schedules and hooks."""

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from playbook.doctor import sandbox
from playbook.doctor.subject import Subject

_LONGEST = 1000  # steps of a schedule that are looked at for its peak


def peaks(subject: Subject) -> list[list[float]]:
    """The highest learning rate that each parameter group of each optimizer gets from its schedule."""
    scheduled = any(
        not isinstance(config.scheduler, ReduceLROnPlateau) for config in subject.trainer.lr_scheduler_configs
    )
    return sandbox.call(lambda: _peaks(subject), 5.0) if scheduled else _rates(subject)


def _rates(subject: Subject) -> list[list[float]]:
    return [[float(group["lr"]) for group in optimizer.param_groups] for optimizer in subject.trainer.optimizers]


def _peaks(subject: Subject) -> list[list[float]]:
    highest = _rates(subject)
    warnings.simplefilter("ignore")  # no optimizer steps before the schedule does
    for _ in range(_LONGEST):
        try:
            for config in subject.trainer.lr_scheduler_configs:
                if not isinstance(config.scheduler, ReduceLROnPlateau):
                    config.scheduler.step()
        except Exception:  # a schedule that ends, as OneCycleLR does
            break
        pairs = zip(highest, _rates(subject), strict=True)
        highest = [[max(pair) for pair in zip(*both, strict=True)] for both in pairs]
    return highest


def budget(limit_s: float) -> Callable[[], bool]:
    """Says, when called, whether so many seconds of this process' own time are spent, or three times as many in all."""
    own, all_together = time.process_time() + limit_s, time.monotonic() + 3 * limit_s
    return lambda: time.process_time() > own or time.monotonic() > all_together


@contextmanager
def losses_of(subject: Subject) -> Iterator[list[Tensor]]:
    """The losses that manual optimization calls backward on while the context lasts, detached."""
    found: list[Tensor] = []
    original = subject.model.manual_backward

    def backward(loss: Tensor, *args: Any, **kwargs: Any) -> None:
        found.append(loss.detach())
        original(loss, *args, **kwargs)

    subject.model.manual_backward = backward
    try:
        yield found
    finally:
        del subject.model.manual_backward


def step(subject: Subject, batches: list[Any], index: int) -> float | None:
    """One step of the user's optimizer over the batches given, and the mean loss before it."""
    model = subject.model
    if not model.automatic_optimization:
        with losses_of(subject) as found:
            returned = [subject.train(batch, index) for batch in batches]
        values = found or [loss.detach() for loss in returned if loss is not None]
        return float(torch.stack([value.double().mean() for value in values]).mean()) if values else None
    optimizer, seen = subject.trainer.optimizers[0], []

    def closure() -> Any:
        optimizer.zero_grad()
        total = None
        for batch in batches:
            loss = subject.train(batch, index)
            if loss is None:
                continue
            (loss / len(batches)).backward()
            total = loss.detach() / len(batches) + (0 if total is None else total)
        seen.append(None if total is None else float(total))
        model.on_after_backward()
        model.on_before_optimizer_step(optimizer)
        clip = subject.settings.get("gradient_clip_val"), subject.settings.get("gradient_clip_algorithm")
        model.configure_gradient_clipping(optimizer, *clip)
        return total

    optimizer.step(closure)
    return seen[0]


def train(
    subject: Subject,
    steps: int,
    limit_s: float,
    scale: float = 1.0,
    ramp: int = 0,
    after: Callable[[], None] = lambda: None,
) -> list[float | None]:
    """The loss before each step of a training over the probe batches, again and again; it stops at the first NaN.

    Args:
        subject: changed by it.
        steps: so many, unless time is up or the loss is no number.
        limit_s: seconds, as of `budget`.
        scale: of the schedule's peak, which the rate is.
        ramp: steps over which the rate rises to that.
        after: called after each step.
    """
    is_spent, found = budget(limit_s), list[float | None]()
    highest = peaks(subject)
    together = int(subject.settings.get("accumulate_grad_batches") or 1)
    together = max(1, min(together, len(subject.batches))) if subject.model.automatic_optimization else 1
    torch.manual_seed(0)
    for number in range(steps):
        risen = min(1.0, (number + 1) / max(1, ramp))
        for optimizer, top in zip(subject.trainer.optimizers, highest, strict=True):
            for group, peak in zip(optimizer.param_groups, top, strict=True):
                group["lr"] = scale * peak * risen
        taken = [subject.batches[(number * together + i) % len(subject.batches)] for i in range(together)]
        found.append(step(subject, taken, number))
        after()
        last = found[-1]
        if (last is not None and not math.isfinite(last)) or is_spent():
            break
    return found
