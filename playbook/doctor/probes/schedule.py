"""Learning-rate schedules: how long they are, and how often they are stepped."""

import ast
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import torch
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CyclicLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
)

from playbook.doctor import blame, source
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.subject import Subject, Watch

SCHEDULER_CADENCE = Defect(
    "scheduler-cadence",
    "warning",
    "The learning rate does not follow the schedule that was meant.",
    explains=("learning-rate-too-low",),
    shown_by=Evidence("measured", "the schedule was compared with the steps of two short epochs"),
)
DEFECTS = (SCHEDULER_CADENCE,)
_GONE = 1e-3  # of the first rate: what a schedule for epochs reaches within one, if it is stepped at every batch
_DEFAULTS = {"interval": "epoch", "frequency": 1}  # of Lightning
_WITH_END = (CosineAnnealingLR, LambdaLR, LinearLR, PolynomialLR)
_KINDS = [
    thing
    for thing in vars(torch.optim.lr_scheduler).values()
    if isinstance(thing, type) and issubclass(thing, LRScheduler)
]
_LONGEST = 100_000  # updates that are followed to see a schedule's end
_STEPS = ("step", "batch", "iter", "update")  # what updates are called
_LOW = 0.05  # of the full rate: what a warm-up for steps is still below after ten epochs


def schedule(subject: Subject) -> Iterator[Finding | str]:
    """Looks at each schedule's length beside the number of batches, and whether it is stepped at all.

    torch's documentation has OneCycleLR and CyclicLR stepped after every batch. A schedule that is over, or has risen
    and fallen several times, within one epoch of batches was made for epochs, and so was a cosine of less than two
    epochs that ends amid one. A schedule stepped by epochs was made for updates if it ends with the very last update of
    the training, or with an epoch's and the source calls its length steps. Lengths that could be either pass. Whatever
    its length, one that starts from a rate of zero leaves out the first epoch.

    Lightning reads interval and frequency from the schedule's own dict and ignores them beside "lr_scheduler". They are
    reported there, unless they say what happens anyway: Lightning's default, or what the schedule's own dict says too.
    Under manual optimization neither place counts.
    """
    scheduled = subject.model.automatic_optimization and subject.trainer.lr_scheduler_configs
    ignored = list(_ignored(subject)) if scheduled else []
    yield from ignored[:1]
    if ignored:
        return
    batches = subject.trainer.num_training_batches
    per_epoch = int(batches) if batches != float("inf") else 10**6
    epochs = subject.settings.get("max_epochs")
    found = False
    for config in subject.trainer.lr_scheduler_configs if subject.model.automatic_optimization else ():
        scheduler = config.scheduler
        if isinstance(scheduler, ReduceLROnPlateau) or config.frequency != 1:
            continue
        problem = (
            _by_epoch(subject, scheduler, per_epoch)
            if config.interval == "epoch"
            else _by_step(scheduler, per_epoch, epochs)
        )
        if problem:
            found = True
            other = "step" if config.interval == "epoch" else "epoch"
            fix = f'"lr_scheduler": {{"scheduler": scheduler, "interval": "{other}"}}'
            message = (
                f"{type(scheduler).__name__} is stepped once a{'n epoch' if other == 'step' else ' batch'}: {problem}"
            )
            yield Finding(SCHEDULER_CADENCE, _place(subject, scheduler), message, fix)
    if not found and (unstepped := _never_stepped(subject)):
        found = True
        fix = 'return {"optimizer": optimizer, "lr_scheduler": scheduler}  # manual optimization: scheduler.step()'
        yield Finding(SCHEDULER_CADENCE, _place(subject, None), f"{unstepped} in two epochs", fix)
    if not found and subject.trainer.lr_scheduler_configs:
        yield "schedules are stepped as they are meant"


def _ignored(subject: Subject) -> Iterator[Finding]:
    """What stands beside "lr_scheduler" and would change how often it is stepped, if it stood inside."""
    made: Any = subject.model.configure_optimizers()
    for entry in made if isinstance(made, list | tuple) else [made]:
        inner = entry.get("lr_scheduler") if isinstance(entry, dict) else None
        if inner is None:
            continue
        own = _DEFAULTS | (inner if isinstance(inner, dict) else {})
        for key in _DEFAULTS:
            if key in entry and entry[key] != own[key]:
                message = f'"{key}" stands beside "lr_scheduler", where Lightning ignores it: '
                message += f"the {key} is {own[key]!r}, not {entry[key]!r}"
                fix = f'"lr_scheduler": {{"scheduler": scheduler, "{key}": {entry[key]!r}}}'
                yield Finding(SCHEDULER_CADENCE, _key(subject, key) or _place(subject, None), message, fix)


def _key(subject: Subject, key: str) -> Place | None:
    """The line that puts a key beside "lr_scheduler", or else the first that names it."""
    functions = [type(subject.model).configure_optimizers, *source.classes_of(subject.model)]
    found = []
    for place, node in source.statements(*functions):
        if isinstance(node, ast.Dict):
            names = {part.value: part.lineno for part in node.keys if isinstance(part, ast.Constant)}
        elif isinstance(node, ast.Call):
            names = {part.arg: part.lineno for part in node.keywords}
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            names = {node.slice.value: node.lineno}
        else:
            continue
        if key in names:
            found.append((not {"lr_scheduler", "optimizer"} & names.keys(), Place(place.file, names[key])))
    return min(found, key=lambda item: item[0])[1] if found else None


def _by_epoch(subject: Subject, scheduler: Any, per_epoch: int) -> str | None:
    if isinstance(scheduler, OneCycleLR) and scheduler.total_steps > max(per_epoch, 50):
        return f"its cycle of {scheduler.total_steps} steps would take as many epochs, of {per_epoch} batches each"
    if isinstance(scheduler, CyclicLR) and scheduler.total_size >= per_epoch:
        return f"a cycle takes {scheduler.total_size:g} epochs"
    if per_epoch > 1 and all(group["lr"] == 0 for group in scheduler.optimizer.param_groups):
        return f"the rate is 0 in all {per_epoch} batches of the first epoch"
    rates = _rates(scheduler, 10)
    if rates[0] > 0 and rates[-1] < _LOW * max(_peak(scheduler), rates[-1]) and rates[-1] > rates[0]:
        return f"after ten epochs the rate is {rates[-1]:.2g} of a full {_peak(scheduler):.2g}"
    length = getattr(scheduler, "T_max", None) or getattr(scheduler, "total_iters", 0)
    if per_epoch > 1 and length > per_epoch and length % per_epoch == 0 and _is_in_steps(subject, scheduler):
        return f"its {length} steps would take as many epochs, and are the batches of {length // per_epoch}"
    updates, epochs = subject.trainer.estimated_stepping_batches, subject.trainer.max_epochs or 0
    least = 2 if subject.settings.get("max_epochs") else 10  # updates an epoch; more where the end is Lightning's
    if 0 < least * epochs <= updates <= _LONGEST and _ends_at(scheduler, int(updates)):
        return f"it ends after {updates} steps, the updates of all {epochs} epochs together"
    return None


def _is_in_steps(subject: Subject, scheduler: LRScheduler) -> bool:
    """Whether the source says that a schedule's length is a number of steps."""
    place = _place(subject, scheduler)
    call = blame.call_at(place, type(scheduler).__name__) if place is not None else None
    if call is None:
        return False
    given = [*call.args[1:2], *(item.value for item in call.keywords if item.arg in ("T_max", "total_iters"))]
    return any(word in ast.unparse(item).lower() for item in given for word in _STEPS)


def _ends_at(scheduler: Any, number: int) -> bool:
    """Whether a schedule falls or rises until this step, and not after it."""
    if hasattr(scheduler, "T_max"):
        return scheduler.T_max == number
    ahead = number - scheduler.last_epoch
    if ahead < 1 or not isinstance(scheduler, _WITH_END):
        return False
    try:
        rates = _rates(scheduler, ahead + max(10, number // 10))
    except Exception:  # of a rule of the user's that has no such step, and so has ended before
        return False
    return rates[ahead] != rates[ahead - 1] and len(set(rates[ahead:])) == 1


def _by_step(scheduler: Any, per_epoch: int, epochs: int | None) -> str | None:
    horizon = getattr(scheduler, "T_max", None)
    if horizon and (2 * horizon <= per_epoch or (horizon < 2 * per_epoch and horizon % per_epoch)) and epochs != 1:
        return f"after {horizon} steps, {horizon / per_epoch:.2g} epochs, the rate rises again"
    if epochs == 1 or per_epoch > 5000 or horizon or isinstance(scheduler, OneCycleLR):
        return None
    rates = _rates(scheduler, per_epoch // 2)
    if 0 < rates[-1] < _GONE * max(rates):
        return f"after half of the first epoch the rate has fallen from {max(rates):.2g} to {rates[-1]:.2g}"
    return None


def _rates(scheduler: LRScheduler, steps: int) -> list[float]:
    """The rates of the first group over some steps; the process is a copy, so the schedule may be used up."""
    rates = [scheduler.optimizer.param_groups[0]["lr"]]
    for _ in range(steps):
        scheduler.step()
        rates.append(scheduler.optimizer.param_groups[0]["lr"])
    return [float(rate) for rate in rates]


def _peak(scheduler: Any) -> float:
    return float(scheduler.optimizer.param_groups[0].get("initial_lr", 0.0))


def _never_stepped(subject: Subject) -> str | None:
    made = [o for o in subject.trainer.optimizers if any("initial_lr" in group for group in o.param_groups)]
    if not made:
        return None
    counts = subject.watch(_Watch).counts
    return None if any(one != counts[0] for one in counts) else "a schedule is made, and never stepped"


class _Watch(Watch):
    """Notes the counters of schedules at the start of every batch."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.counts: list[list[int]] = []

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        schedules = [item for item in blame.living(LRScheduler) if item.optimizer in trainer.optimizers]
        self.counts.append([item.last_epoch for item in schedules])


def _place(subject: Subject, scheduler: LRScheduler | None) -> Place | None:
    """The schedule's construction, or of one that is lost already that in the source."""
    method = type(subject.model).configure_optimizers
    living = [scheduler] if scheduler is not None else blame.living(LRScheduler)
    names = [kind.__name__ for kind in _KINDS]
    return (
        next(filter(None, map(blame.maker, living)), None)
        or source.first_call([method, *source.classes_of(subject.model)], *names)
        or source.definition(method)
    )
