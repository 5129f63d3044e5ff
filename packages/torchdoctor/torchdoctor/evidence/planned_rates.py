"""Steps a schedule ahead to tell whether its length is meant in epochs."""

from copy import deepcopy
from itertools import combinations
from typing import Any

from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

LONGEST = 20_000  # steps of a schedule that are followed
_FEW_VALUES = 4  # of which nothing is said
_GONE = 1e-2  # of the first rate: what a schedule for epochs falls to within one, if it is stepped at every batch


def next_rates(scheduler: LRScheduler, steps: int) -> list[float]:
    """The first group's rates over the next steps; the schedule is consumed.

    Raises:
        Exception: of a rule of the user's, or of torch's, that has no such step.
    """
    rates = [scheduler.optimizer.param_groups[0]["lr"]]
    for _ in range(steps):
        scheduler.step()
        rates.append(scheduler.optimizer.param_groups[0]["lr"])
    return [float(rate) for rate in rates]


def made_for_epochs(scheduler: Any, per_epoch: int, epochs: int | None) -> str | None:
    """Describes how a schedule stepped at every update goes wrong; None if it does not. The schedule is consumed.

    A cosine comes to its end within an epoch, or amid the second; any other rate has fallen to a hundredth after the
    first epoch, and stays there in the second.

    Args:
        scheduler: that is yet to be stepped.
        per_epoch: updates of an epoch.
        epochs: of the training; None if that is not known.
    """
    horizon = getattr(scheduler, "T_max", None)
    if epochs == 1 or isinstance(scheduler, lr_scheduler.OneCycleLR):
        return None
    if horizon and (2 * horizon <= per_epoch or (horizon < 2 * per_epoch and horizon % per_epoch)):
        return f"after {horizon} steps, {horizon / per_epoch:.2g} epochs, the rate rises again"
    if horizon:
        return None
    try:
        rates = next_rates(scheduler, 2 * per_epoch)
    except Exception:  # of a rule that has no such step
        return None
    first, second = rates[: per_epoch + 1], rates[per_epoch:]
    if 0 < max(second) < _GONE * max(first):
        return (
            f"after the first epoch, of {per_epoch} steps, the rate has fallen from {max(first):.2g} to {first[-1]:.2g}"
        )
    return None


def can_be_followed(scheduler: Any, per_epoch: int) -> bool:
    """Whether `made_for_epochs` applies: not to rates that depend on metrics, nor to very long epochs."""
    return isinstance(scheduler, LRScheduler) and not _waits(scheduler) and 1 < per_epoch <= LONGEST // 2


def _waits(scheduler: Any) -> bool:
    return isinstance(scheduler, lr_scheduler.ReduceLROnPlateau)


class InitialState:
    """A schedule's initial state, to which it can be restored."""

    def __init__(self, scheduler: LRScheduler) -> None:
        self.scheduler, self.state = scheduler, deepcopy(scheduler.state_dict())
        self.rates = [float(group["lr"]) for group in scheduler.optimizer.param_groups]

    def restore(self) -> None:
        """Restores the schedule and its optimizer's rates."""
        self.scheduler.load_state_dict(self.state)
        for group, rate in zip(self.scheduler.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate


def falls(values: list[float]) -> bool:
    """Whether what is measured epoch by epoch falls, as a loss does.

    By a fifth in all and in four pairs of five; or by little and in nine pairs of ten, where the rate is gone already.
    """
    pairs = [later < earlier for earlier, later in combinations(values, 2)]
    is_lower = len(values) > _FEW_VALUES and values[0] - values[-1] > 0.2 * abs(values[0])
    share = sum(pairs) / max(1, len(pairs))
    return (is_lower and share >= 0.8) or (len(values) >= 2 * _FEW_VALUES and share >= 0.9)
