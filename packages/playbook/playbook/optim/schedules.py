"""Learning-rate schedules. Any class of `torch.optim.lr_scheduler` can be used as well, by its name."""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from torch import optim
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.lr_scheduler import ReduceLROnPlateau as TorchReduceLROnPlateau


class WarmupCosine(LambdaLR):
    """Linear warm-up to the optimizer's rate, then half a cosine down to `final` (Loshchilov & Hutter 2017).

    Args:
        optimizer: optimizer to schedule; each group starts from its own `lr`.
        total_steps: optimizer steps of the whole training. Defaults to those of the trainer.
        warmup: share of the steps used for the warm-up, in [0, 1).
        final: rate at the end, as a share of the peak, in [0, 1].

    Raises:
        ValueError: a share is out of range, or there is no step.
    """

    interval = "step"

    def __init__(
        self, optimizer: optim.Optimizer, total_steps: int | None = None, warmup: float = 0.1, final: float = 0.0
    ) -> None:
        if not 0 <= warmup < 1:
            raise ValueError(f"warmup: expected a share of the steps in [0, 1), got {warmup}")
        if not 0 <= final <= 1:
            raise ValueError(f"final: expected a share of the peak rate in [0, 1], got {final}")
        if total_steps is None or total_steps < 1:
            raise ValueError(f"total_steps: expected at least 1 optimizer step, got {total_steps}")
        warmup_steps = min(round(warmup * total_steps), total_steps - 1)  # one step at the peak, however short the run

        def share(step: int) -> float:
            if step < warmup_steps:
                return (step + 1) / (warmup_steps + 1)  # never 0: the first step learns something
            progress = min(1.0, (step - warmup_steps) / (total_steps - warmup_steps))
            return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress))

        super().__init__(optimizer, share)


class ReduceLROnPlateau(TorchReduceLROnPlateau):
    """Lowers the rate when a metric stops improving: torch's class, plus the name of the metric.

    Args:
        optimizer: optimizer to schedule.
        monitor: name of the logged metric.
        mode: whether the metric should decrease (min) or increase (max).
        factor: factor by which the rate is multiplied, below 1.
        patience: number of epochs without improvement before the rate is lowered.
        threshold: relative change that counts as an improvement.
        cooldown: number of epochs to wait after the rate was lowered.
        min_lr: lower bound of the rate.
    """

    def __init__(
        self,
        optimizer: optim.Optimizer,
        monitor: str = "val/loss",
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
    ) -> None:
        super().__init__(optimizer, mode, factor, patience, threshold, cooldown=cooldown, min_lr=min_lr)
        self.monitor = monitor


def scheduler_config(scheduler: Any) -> dict[str, Any]:
    """Fills in how often Lightning steps a scheduler, and on what.

    OneCycleLR, CyclicLR and schedules with `interval = "step"` move at every optimizer step, all others every epoch.
    """
    per_step = isinstance(scheduler, optim.lr_scheduler.OneCycleLR | optim.lr_scheduler.CyclicLR)
    config = {"scheduler": scheduler, "interval": getattr(scheduler, "interval", "step" if per_step else "epoch")}
    if isinstance(scheduler, TorchReduceLROnPlateau):
        config["monitor"] = getattr(scheduler, "monitor", "val/loss")
    return config


def peak_rate(group: dict[str, Any], index: int, scheduler: Any = None) -> float:
    """The highest learning rate that a schedule gives to a parameter group.

    Args:
        group: of the optimizer.
        index: its place among the groups.
        scheduler: of the optimizer.
    """
    cyclic = getattr(scheduler, "max_lrs", None)
    own = cyclic[index] if cyclic else group.get("max_lr", 0.0)  # of CyclicLR, of OneCycleLR
    return float(max(group.get("initial_lr", group["lr"]), own))


def keep_shares(optimizer: optim.Optimizer, scheduler: Any, shares: Sequence[float]) -> None:
    """Gives each parameter group its share of the rates, for as long as the schedule lasts.

    What torch's schedules set in absolute numbers is multiplied too: the rates of OneCycleLR, CyclicLR and SWALR, and
    the lowest rates of CosineAnnealingLR, CosineAnnealingWarmRestarts and ReduceLROnPlateau.

    Args:
        optimizer: whose groups have the same rate each.
        scheduler: made for this optimizer, not stepped yet; None if there is none.
        shares: of each group in these rates.
    """
    for group, share in zip(optimizer.param_groups, shares, strict=True):
        _scale_group(group, share)
    if scheduler is not None:
        _scale(scheduler, shares)
        _share_floors(scheduler, shares)


def _share_floors(scheduler: Any, shares: Sequence[float]) -> None:
    """Lowest rates, which torch has one of for all groups."""
    if hasattr(scheduler, "min_lrs"):
        scheduler.min_lrs = [rate * share for rate, share in zip(scheduler.min_lrs, shares, strict=True)]
        scheduler.eps = 0.0  # else a group of a small rate would stop falling before the others
    if getattr(scheduler, "eta_min", 0.0):
        kind = type(scheduler)
        methods = [name for name in ("get_lr", "_get_closed_form_lr") if hasattr(kind, name)]
        scheduler.__class__ = type(kind.__name__, (kind,), {name: _by_group(kind, name) for name in methods})
        scheduler.shares = list(shares)
    for inner in getattr(scheduler, "_schedulers", []):
        _share_floors(inner, shares)


def _by_group(kind: type, method: str) -> Callable[[Any], list[Any]]:
    """A method of a cosine schedule in which each group falls to its share of `eta_min`."""

    def rates(self: Any) -> list[Any]:
        floor, rates_by_group = self.eta_min, []
        try:
            for index, share in enumerate(self.shares):
                self.eta_min = floor * share
                rates_by_group.append(getattr(kind, method)(self)[index])
        finally:
            self.eta_min = floor
        return rates_by_group

    return rates


def scale_rates(optimizers: Iterable[optim.Optimizer], schedulers: Iterable[Any], factor: float) -> None:
    """Multiplies the present rates, and those that schedules start from, by a factor.

    Args:
        optimizers: whose parameter groups hold the rates.
        schedulers: of these optimizers.
        factor: what every rate is multiplied by.
    """
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        _scale_group(group, factor)
    for scheduler in schedulers:
        _scale(scheduler, itertools.repeat(factor))


def _scale_group(group: dict[str, Any], factor: float) -> None:
    for name in ("lr", "initial_lr", "max_lr", "min_lr", "swa_lr"):  # the last three are OneCycleLR's and SWALR's
        if name in group:
            group[name] = group[name] * factor


def _scale(scheduler: Any, factors: Iterable[float]) -> None:
    """By a factor for each group."""
    for name in ("base_lrs", "max_lrs", "_last_lr"):  # the second are CyclicLR's
        if hasattr(scheduler, name):
            setattr(scheduler, name, [rate * factor for rate, factor in zip(getattr(scheduler, name), factors)])  # noqa: B905  # factors may have no end
    for inner in getattr(scheduler, "_schedulers", []):  # of SequentialLR and ChainedScheduler
        _scale(inner, factors)
