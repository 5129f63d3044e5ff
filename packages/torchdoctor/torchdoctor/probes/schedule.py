"""Learning-rate schedules: how long they are, and how often they are stepped."""

import ast
import re
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from torchdoctor import blame, source
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.rehearsal import Watch, watched
from torchdoctor.subject import Subject
from torchdoctor.training import RATE_FOR_FACTOR, rate_for_factor

SCHEDULER_CADENCE = Defect(
    "scheduler-cadence",
    "warning",
    "The learning rate does not follow the schedule that was meant.",
    explains=("learning-rate-too-low",),
    shown_by=Evidence("measured", "the schedule was compared with the steps of two short epochs"),
)
AT_START = True
_GONE = 1e-3  # of the first rate: what a schedule for epochs reaches within one, if it is stepped at every batch
_LOW = 0.05  # of the full rate: what a warm-up for steps is still below after ten epochs
_DEFAULTS = {"interval": "epoch", "frequency": 1}  # of Lightning
_WITH_END = (lr_scheduler.LambdaLR, lr_scheduler.LinearLR, lr_scheduler.PolynomialLR)
_LONGEST = 100_000  # updates that are followed to see a schedule's end
_STEPS = ("step", "batch", "iter", "update")  # what updates are called


def schedule(subject: Subject) -> Iterator[Finding | str]:
    """Looks at each schedule's length beside the number of batches, and whether it is stepped at all.

    torch's documentation has OneCycleLR and CyclicLR stepped after every batch. A schedule that is over, or has risen
    and fallen several times, within one epoch of batches was made for epochs, and so was a cosine of less than two
    epochs that ends amid one. A schedule stepped by epochs was made for updates if it ends with the very last update of
    the training, or with an epoch's and the source calls its length steps. Lengths that could be either pass. Whatever
    its length, one that starts from a rate of zero leaves out the first epoch, a lowest rate above that of the
    optimizer makes the rate rise, and a function that returns a rate where a factor is meant gives its square.

    Lightning reads interval and frequency from the schedule's own dict and ignores them beside "lr_scheduler". They are
    reported there, unless they say what happens anyway: Lightning's default, or what the schedule's own dict says too.
    Under manual optimization neither place counts.
    """
    twice = _changed_twice(subject)
    if twice is not None:
        message = f"this {type(twice).__name__} has the optimizer of another schedule, and one optimizer has none"
        yield Finding(SCHEDULER_CADENCE, _place(subject, [twice]), message, "# give each schedule its own optimizer")
        return
    configs = subject.trainer.lr_scheduler_configs if subject.model.automatic_optimization else []
    ignored = next(_ignored(subject), None) if configs else None
    if ignored:
        yield ignored
        return
    for scheduler in (config.scheduler for config in configs):
        least, rates = getattr(scheduler, "eta_min", 0.0), _full(scheduler)
        if least > max(rates):
            message = f"eta_min={least:g} is above the rate of {max(rates):g} that {type(scheduler).__name__} lowers"
            yield Finding(SCHEDULER_CADENCE, _place(subject, [scheduler]), message, "eta_min=0.0  # below the rate")
            return
        if problem := rate_for_factor(scheduler):
            yield Finding(SCHEDULER_CADENCE, _place(subject, [scheduler]), problem, RATE_FOR_FACTOR)
            return
    problems = [(config, problem) for config in configs if (problem := _problem(subject, config))]
    for config, problem in problems:
        each, other = ("n epoch", "step") if config.interval == "epoch" else (" batch", "epoch")
        message = f"{type(config.scheduler).__name__} is stepped once a{each}: {problem}"
        fix = f'"lr_scheduler": {{"scheduler": scheduler, "interval": "{other}"}}'
        yield Finding(SCHEDULER_CADENCE, _place(subject, [config.scheduler]), message, fix)
    if problems:
        return
    if _is_never_stepped(subject):
        fix = 'return {"optimizer": optimizer, "lr_scheduler": scheduler}  # manual optimization: scheduler.step()'
        place = _place(subject, blame.living(LRScheduler))
        if place is not None and _is_switched_off(place):
            return
        yield Finding(SCHEDULER_CADENCE, place, "a schedule is made, and never stepped in two epochs", fix)
    elif subject.trainer.lr_scheduler_configs:
        yield "schedules are stepped as they are meant"


def _changed_twice(subject: Subject) -> Any:
    """The second schedule of an optimizer, where there is a schedule for each and one optimizer has none."""
    schedules = [config.scheduler for config in subject.trainer.lr_scheduler_configs]
    changed = [id(getattr(schedule, "optimizer", schedule)) for schedule in schedules]
    if len(schedules) != len(subject.trainer.optimizers):
        return None
    return next((schedule for number, schedule in enumerate(schedules) if changed[number] in changed[:number]), None)


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
                yield Finding(SCHEDULER_CADENCE, _key(subject, key) or _place(subject, []), message, fix)


def _key(subject: Subject, key: str) -> Place | None:
    """The first line that names a key, as a text or as an option."""
    functions = [type(subject.model).configure_optimizers, *source.classes_of(subject.model)]
    named = (
        place
        for place, node in source.statements(*functions)
        if key == (node.value if isinstance(node, ast.Constant) else getattr(node, "arg", None))
    )
    return next(named, None)


def _problem(subject: Subject, config: Any) -> str | None:
    """What a schedule does that it cannot have been made for."""
    if isinstance(config.scheduler, lr_scheduler.ReduceLROnPlateau) or config.frequency != 1:
        return None
    batches = subject.trainer.num_training_batches
    per_epoch = int(batches) if batches != float("inf") else 10**6
    by_interval = _by_epoch if config.interval == "epoch" else _by_step
    return by_interval(subject, config.scheduler, per_epoch)


def _full(scheduler: Any) -> list[float]:
    """The rates that a schedule starts from."""
    return [float(group.get("initial_lr", 0.0)) for group in scheduler.optimizer.param_groups]


def _by_epoch(subject: Subject, scheduler: Any, per_epoch: int) -> str | None:
    if isinstance(scheduler, lr_scheduler.OneCycleLR) and scheduler.total_steps > max(per_epoch, 50):
        return f"its cycle of {scheduler.total_steps} steps would take as many epochs, of {per_epoch} batches each"
    if isinstance(scheduler, lr_scheduler.CyclicLR) and scheduler.total_size >= per_epoch:
        return f"a cycle takes {scheduler.total_size:g} epochs"
    if per_epoch > 1 and all(group["lr"] == 0 for group in scheduler.optimizer.param_groups):
        return f"the rate is 0 in all {per_epoch} batches of the first epoch"
    rates, full = _rates(scheduler, 10), _full(scheduler)[0]
    if 0 < rates[0] < rates[-1] < _LOW * full:
        return f"after ten epochs the rate is {rates[-1]:.2g} of a full {full:.2g}"
    length = getattr(scheduler, "T_max", None) or getattr(scheduler, "total_iters", 0)
    if 1 < per_epoch < length and length % per_epoch == 0 and _is_in_steps(subject, scheduler):
        return f"its {length} steps would take as many epochs, and are the batches of {length // per_epoch}"
    epochs = subject.settings.get("max_epochs")
    updates = subject.trainer.estimated_stepping_batches
    least = 2 * epochs if epochs else 10 * (subject.trainer.max_epochs or 0)  # more where the end is Lightning's
    if 0 < least <= updates <= _LONGEST and _ends_at(scheduler, int(updates)):
        return f"it ends after {updates} steps, the updates of all {subject.trainer.max_epochs} epochs together"
    return None


def _is_in_steps(subject: Subject, scheduler: LRScheduler) -> bool:
    """Whether the source says that a schedule's length is a number of steps."""
    place = _place(subject, [scheduler])
    call = blame.call_at(place, type(scheduler).__name__) if place is not None else None
    options = [option.value for option in call.keywords if option.arg in ("T_max", "total_iters")] if call else []
    lengths = [ast.unparse(length).lower() for length in (*call.args[1:2], *options)] if call else []
    return any(word in length for length in lengths for word in _STEPS)


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


def _by_step(subject: Subject, scheduler: Any, per_epoch: int) -> str | None:
    horizon, epochs = getattr(scheduler, "T_max", None), subject.settings.get("max_epochs")
    if horizon and (2 * horizon <= per_epoch or (horizon < 2 * per_epoch and horizon % per_epoch)) and epochs != 1:
        return f"after {horizon} steps, {horizon / per_epoch:.2g} epochs, the rate rises again"
    if epochs == 1 or per_epoch > 5000 or horizon or isinstance(scheduler, lr_scheduler.OneCycleLR):
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


def _is_never_stepped(subject: Subject) -> bool:
    groups = [group for optimizer in subject.trainer.optimizers for group in optimizer.param_groups]
    if not any("initial_lr" in group for group in groups):  # which schedules write
        return False
    counts = watched(subject, _Watch).counts
    return all(count == counts[0] for count in counts)


def _is_switched_off(place: Place) -> bool:
    """Whether code in a comment of the same function has what is made here: `return [optimizer]  # , [schedule]`."""
    function = source.function_at(place) or ast.Pass()
    made = [node for node in ast.walk(function) if isinstance(node, ast.Assign) and node.lineno == place.line]
    lines = [Place(place.file, line).code for line in range(place.line, getattr(function, "end_lineno", 0) + 1)]
    comments = [line.partition("#")[2].strip(" ,") for line in lines]
    codes = [text for text in comments if source.is_code(text)]
    return any(re.search(rf"\b{re.escape(ast.unparse(node.targets[0]))}\b", text) for node in made for text in codes)


class _Watch(Watch):
    """Notes the counters of schedules at the start of every batch."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.counts: list[list[int]] = []

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        schedules = [item for item in blame.living(LRScheduler) if item.optimizer in trainer.optimizers]
        self.counts.append([item.last_epoch for item in schedules])


def _place(subject: Subject, schedules: list[LRScheduler]) -> Place | None:
    """The schedule's construction, or of one that is lost already that in the source."""
    method = type(subject.model).configure_optimizers
    types = [kind for kind in vars(lr_scheduler).values() if isinstance(kind, type)]
    kinds = [kind.__name__ for kind in types if issubclass(kind, LRScheduler)]
    return (
        next(filter(None, map(blame.maker, schedules)), None)
        or source.first_call([method, *source.classes_of(subject.model)], *kinds)
        or source.definition(method)
    )
