"""Short trainings with the user's own optimizers, schedules and hooks."""

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest import mock

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from torchdoctor.running import sandbox
from torchdoctor.running.subject import Subject

_LONGEST = 1000  # steps of a schedule that are looked at for its peak
_AHEAD, _NO_FACTOR = 100, 0.5  # steps whose factors are looked at; below it, a rate is no usual factor to begin with
RATE_FOR_FACTOR = "lambda step: … / rate  # a factor of the optimizer's rate, not a rate"


def parameters_of(optimizers: Iterable[torch.optim.Optimizer]) -> list[Tensor]:
    """The parameters of optimizers."""
    return [parameter for each in optimizers for group in each.param_groups for parameter in group["params"]]


def weights_of(optimizer: torch.optim.Optimizer) -> set[int]:
    """The parameters of an optimizer, by identity."""
    return set(map(id, parameters_of([optimizer])))


def trained_weights(subject: Subject) -> set[int]:
    """The weights of all optimizers, by identity."""
    return set(map(id, parameters_of(subject.trainer.optimizers)))


def rate_for_factor(schedule: Any) -> str:
    """Describes a LambdaLR whose function returns the learning rate instead of a factor; "" if it does not.

    The function begins with the very rate, and does not rise: that of a warm-up may begin with such a number by chance.
    """
    if not isinstance(schedule, LambdaLR):
        return ""
    rate, function, factors = schedule.base_lrs[0], schedule.lr_lambdas[0], list[float]()
    with suppress(Exception):  # of the user's function
        factors = [float(function(number)) for number in range(_AHEAD)]
    is_rate = rate < _NO_FACTOR and len(factors) == _AHEAD and max(factors) == factors[0]
    if not is_rate or not math.isclose(factors[0], rate, rel_tol=1e-6):
        return ""
    return f"LambdaLR multiplies the rate, {rate:g}, by what its function returns, here {rate:g} again: {rate**2:.3g}"


def peak_rates(subject: Subject) -> list[list[float]]:
    """The peak learning rate of each parameter group under its schedule."""
    schedules = [config.scheduler for config in subject.trainer.lr_scheduler_configs]
    schedules = [schedule for schedule in schedules if not isinstance(schedule, ReduceLROnPlateau)]
    return sandbox.call(lambda: _scheduled_peak_rates(subject, schedules), 5.0) if schedules else _rates(subject)


def _rates(subject: Subject) -> list[list[float]]:
    return [[float(group["lr"]) for group in optimizer.param_groups] for optimizer in subject.trainer.optimizers]


def _scheduled_peak_rates(subject: Subject, schedules: list[Any]) -> list[list[float]]:
    seen = [_rates(subject)]
    warnings.simplefilter("ignore")  # no optimizer steps before the schedule does
    with suppress(Exception):  # of a schedule that ends, as OneCycleLR does
        for _ in range(_LONGEST):
            for schedule in schedules:
                schedule.step()
            seen.append(_rates(subject))
    first = [[group.get("initial_lr", math.inf) for group in each.param_groups] for each in subject.trainer.optimizers]
    return [
        [_peak_rate(rates, base) for *rates, base in zip(*groups, bases, strict=True)]
        for *groups, bases in zip(*seen, first, strict=True)
    ]


def _peak_rate(rates: list[float], base: float) -> float:
    """The highest rate; that which a schedule begins from where it would rise without an end."""
    return base if max(rates) == rates[-1] > base else max(rates)


def time_budget(limit_s: float) -> Callable[[], bool]:
    """Returns a function that says whether this process has used so much CPU time, or three times as much wall time."""
    own, all_together = time.process_time() + limit_s, time.monotonic() + 3 * limit_s
    return lambda: time.process_time() > own or time.monotonic() > all_together


def step(subject: Subject, batches: list[Any], index: int) -> float | None:
    """Runs one optimizer step over these batches and returns the mean loss before it."""
    script, losses = subject.script, list[Tensor]()
    if script is not None and script.optimizes:
        script.optimize(subject.fresh(batches[0]), index, lambda loss: losses.append(loss.detach().double().mean()))
        return _mean(losses)
    if not subject.model.automatic_optimization:
        return _manual_step(subject, batches[0], index)
    model, optimizer, seen = subject.model, subject.trainer.optimizers[0], list[Any]()

    def closure() -> Any:
        optimizer.zero_grad()
        losses = []
        for loss in (subject.train(batch, index) for batch in batches):
            if loss is not None:
                (loss / len(batches)).backward()
                losses.append(loss.detach() / len(batches))
        seen.append(sum(losses) if losses else None)
        model.on_after_backward()
        model.on_before_optimizer_step(optimizer)
        clip = subject.settings.get("gradient_clip_val"), subject.settings.get("gradient_clip_algorithm")
        model.configure_gradient_clipping(optimizer, *clip)
        return seen[-1]

    optimizer.step(closure)
    return None if seen[0] is None else float(seen[0])


@contextmanager
def noting_losses(model: pl.LightningModule, note: Callable[[Tensor], None]) -> Iterator[None]:
    """A context that calls `note` with each loss before `manual_backward` runs."""
    original = model.manual_backward

    def backward(loss: Tensor, *args: Any, **kwargs: Any) -> None:
        note(loss)
        original(loss, *args, **kwargs)

    with mock.patch.object(model, "manual_backward", backward):
        yield


def _manual_step(subject: Subject, batch: Any, index: int) -> float | None:
    """Runs a manually optimized step and returns the mean of its backward losses, or of what it returns."""
    losses: list[Tensor] = []
    with noting_losses(subject.model, lambda loss: losses.append(loss.detach().double().mean())):
        returned = subject.train(batch, index)
    if not losses and returned is not None:
        losses.append(returned.detach().double().mean())
    return _mean(losses)


def leave_out_dropout(model: nn.Module) -> None:
    """Sets the rate of every dropout to 0, those of recurrent networks and attention too."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
            module.dropout = 0.0


def _mean(losses: list[Tensor]) -> float | None:
    return float(torch.stack(losses).mean()) if losses else None


def train(
    subject: Subject,
    steps: int,
    limit_s: float,
    scale: float = 1.0,
    ramp: int = 0,
    after: Callable[[], None] = lambda: None,
) -> list[float | None]:
    """Trains on the probe batches in a loop, up to the first NaN, and returns the loss before each step.

    Args:
        subject: changed by it.
        steps: so many, unless time is up or the loss is no number.
        limit_s: seconds, as of `budget`.
        scale: of the schedule's peak, which the rate is.
        ramp: steps over which the rate rises to that.
        after: called after each step.
    """
    is_spent, losses = time_budget(limit_s), list[float | None]()
    highest = peak_rates(subject)
    together = int(subject.settings.get("accumulate_grad_batches") or 1)
    together = max(1, min(together, len(subject.batches))) if subject.model.automatic_optimization else 1
    torch.manual_seed(0)
    for number in range(steps):
        risen = scale * min(1.0, (number + 1) / max(1, ramp))
        for optimizer, tops in zip(subject.trainer.optimizers, highest, strict=True):
            for group, top in zip(optimizer.param_groups, tops, strict=True):
                group["lr"] = top * risen
        taken = [subject.batches[(number * together + i) % len(subject.batches)] for i in range(together)]
        losses.append(step(subject, taken, number))
        after()
        last = losses[-1]
        if (last is not None and not math.isfinite(last)) or is_spent():
            break
    return losses
