"""Learning-rate schedules whose length does not fit how often they are stepped."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import lightning.pytorch as pl
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from torchdoctor import source
from torchdoctor.evidence import origins
from torchdoctor.evidence.planned_rates import can_be_followed, made_for_epochs, next_rates
from torchdoctor.findings import Defect, Evidence, Finding, NotLookedAt, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running import sandbox
from torchdoctor.running.rehearsal import Watch, rehearsal_notes
from torchdoctor.running.subject import Subject
from torchdoctor.running.training import RATE_FOR_FACTOR, rate_for_factor

SCHEDULER_CADENCE = Defect(
    "scheduler-cadence",
    "warning",
    "The learning rate does not follow the schedule that was meant.",
    explains=("learning-rate-too-low",),
    shown_by=Evidence("measured", "the schedule was compared with the steps of two short epochs"),
)
_DEFAULTS = {"interval": "epoch", "frequency": 1}  # of Lightning
_WITH_END = (lr_scheduler.LambdaLR, lr_scheduler.LinearLR, lr_scheduler.PolynomialLR)
_WATCHED_S = 20.0  # to see how often a program steps its schedules itself
_LONGEST = 100_000  # updates that are followed to see a schedule's end
_STEPS = ("step", "batch", "iter", "update")  # what updates are called


def schedule(subject: Subject, low: float = 0.05) -> Iterator[Finding | str | NotLookedAt]:
    """Looks at each schedule's length beside the number of batches, and whether it is stepped at all.

    torch's documentation has OneCycleLR and CyclicLR stepped after every batch. A schedule that falls to a hundredth
    within one epoch of batches and stays there was made for epochs, and so was a cosine that rises and falls several
    times in it, or ends amid the second. A schedule stepped by epochs was made for updates if it ends with the very
    last update of the training, or with an epoch's and the source calls its length steps. Lengths that could be either
    pass. Whatever its length, one that starts from a rate of zero leaves out the first epoch, a lowest rate above that
    of the optimizer makes the rate rise, and a function that returns a rate where a factor is meant gives its square.

    Lightning reads interval and frequency from the schedule's own dict and ignores them beside "lr_scheduler". They are
    reported there, unless they say what happens anyway: Lightning's default, or what the schedule's own dict says too.
    Under manual optimization neither place counts, and how often a schedule is stepped is seen in two short epochs.

    Args:
        subject: the training that has just begun.
        low: share of the full rate that a warm-up for steps is still below after ten epochs.
    """
    twice = _changed_twice(subject)
    if twice is not None:
        message = f"this {type(twice).__name__} has the optimizer of another schedule, and one optimizer has none"
        yield Finding(SCHEDULER_CADENCE, _place(subject, [twice]), message, "# give each schedule its own optimizer")
        return
    configs = subject.trainer.lr_scheduler_configs if subject.model.automatic_optimization else []
    wrong = next(_ignored(subject), None) if configs else None
    wrong = wrong or next(_wrong_rates(subject, [config.scheduler for config in configs]), None)
    if wrong:
        yield wrong
        return
    per_epoch = _updates_per_epoch(subject)
    stepped = _stepped(subject)
    problems = [
        (scheduler, by, text) for scheduler, by in stepped if (text := _problem(subject, scheduler, by, per_epoch, low))
    ]
    for scheduler, interval, problem in problems:
        each, other = ("n epoch", "step") if interval == "epoch" else (" batch", "epoch")
        message = f"{type(scheduler).__name__} is stepped once a{each}: {problem}"
        fix, values = _in_dict("interval", f'"{other}"')
        if not subject.model.automatic_optimization:
            fix, values = f"scheduler.step()  # once in each {other}", {}
        yield Finding(SCHEDULER_CADENCE, _place(subject, [scheduler]), message, fix, values)
    if problems:
        return
    if _is_never_stepped(subject):
        fix = 'return {"optimizer": optimizer, "lr_scheduler": scheduler}  # manual optimization: scheduler.step()'
        place = _place(subject, origins.living_objects(LRScheduler))
        if place is not None and _is_switched_off(place):
            return
        yield Finding(SCHEDULER_CADENCE, place, "a schedule is made, and never stepped in two epochs", fix)
    elif subject.trainer.lr_scheduler_configs:
        followed = [
            scheduler for scheduler, by in stepped if by and (by == "epoch" or can_be_followed(scheduler, per_epoch))
        ]
        if len(followed) == len(subject.trainer.lr_scheduler_configs):
            yield "schedules are stepped as they are meant"
        else:
            reason = "a schedule waits for what is measured, is stepped in turns of its own, or has very long epochs"
            yield NotLookedAt(SCHEDULER_CADENCE, reason)


PROBE = Probe(
    look=schedule,
    defects=(SCHEDULER_CADENCE,),
    needs=(Need.LIGHTNING,),
    by_rehearsal=(SCHEDULER_CADENCE,),
    at_start=True,
)


def _wrong_rates(subject: Subject, schedulers: list[Any]) -> Iterator[Finding]:
    """Lowest rates that are above the optimizer's, and functions that return a rate where a factor is meant."""
    for scheduler in schedulers:
        least, rates = getattr(scheduler, "eta_min", 0.0), _initial_rates(scheduler)
        if least > max(rates):
            message = f"eta_min={least:g} is above the rate of {max(rates):g} that {type(scheduler).__name__} lowers"
            yield Finding(SCHEDULER_CADENCE, _place(subject, [scheduler]), message, "eta_min=0.0  # below the rate")
        if problem := rate_for_factor(scheduler):
            yield Finding(SCHEDULER_CADENCE, _place(subject, [scheduler]), problem, RATE_FOR_FACTOR)


def _changed_twice(subject: Subject) -> Any:
    """The second schedule of an optimizer, where there is a schedule for each and one optimizer has none."""
    schedules = [config.scheduler for config in subject.trainer.lr_scheduler_configs]
    changed = [id(getattr(schedule, "optimizer", schedule)) for schedule in schedules]
    if len(schedules) != len(subject.trainer.optimizers):
        return None
    return next((schedule for number, schedule in enumerate(schedules) if changed[number] in changed[:number]), None)


def _ignored(subject: Subject) -> Iterator[Finding]:
    """What stands beside "lr_scheduler" and would change how often it is stepped, if it stood inside."""
    returned: Any = subject.model.configure_optimizers()
    for entry in returned if isinstance(returned, list | tuple) else [returned]:
        inner = entry.get("lr_scheduler") if isinstance(entry, dict) else None
        if inner is None:
            continue
        own = _DEFAULTS | (inner if isinstance(inner, dict) else {})
        for key in _DEFAULTS:
            if key in entry and entry[key] != own[key]:
                message = f'"{key}" stands beside "lr_scheduler", where Lightning ignores it: '
                message += f"the {key} is {own[key]!r}, not {entry[key]!r}"
                place = _key(subject, key) or _place(subject, [])
                yield Finding(SCHEDULER_CADENCE, place, message, *_in_dict(key, repr(entry[key])))


def _in_dict(key: str, value: str) -> tuple[str, dict[str, str]]:
    """The fix that sets an option of a schedule, and the values for its repair."""
    return f'"lr_scheduler": {{"scheduler": scheduler, "{key}": {value}}}', {"key": key, "value": value}


def _key(subject: Subject, key: str) -> Place | None:
    """The first line that names a key, as a text or as an option."""
    functions = [type(subject.model).configure_optimizers, *source.classes_of(subject.model)]
    named = (
        place
        for place, node in source.statements(*functions)
        if key == (node.value if isinstance(node, ast.Constant) else getattr(node, "arg", None))
    )
    return next(named, None)


def _updates_per_epoch(subject: Subject) -> int:
    """Batches of an epoch."""
    batches = subject.trainer.num_training_batches
    return int(batches) if batches != float("inf") else 10**6


def _stepped(subject: Subject) -> list[tuple[Any, str]]:
    """The schedules, and whether each is stepped once in an "epoch" or a "step"; "" for anything else."""
    configs = subject.trainer.lr_scheduler_configs
    schedulers = [config.scheduler for config in configs]
    if subject.model.automatic_optimization:
        regular = [isinstance(each.scheduler, LRScheduler) and each.frequency == 1 for each in configs]
        intervals = [each.interval if is_regular else "" for each, is_regular in zip(configs, regular, strict=True)]
    else:
        counts = sandbox.attempt(lambda: rehearsal_notes(subject, _Watch).counts, _WATCHED_S, [])
        columns = list(zip(*counts, strict=True)) if counts and len(counts[0]) == len(configs) else [()] * len(configs)
        intervals = [_interval(column) for column in columns]
    waits = [isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) for scheduler in schedulers]
    return [(each, "" if is_waiting else by) for each, by, is_waiting in zip(schedulers, intervals, waits, strict=True)]


def _interval(counts: tuple[int, ...]) -> str:
    """How often a schedule is stepped, of its counters at the starts of the batches of two epochs."""
    steps = [later - earlier for earlier, later in pairwise(counts)]
    if steps and all(step == 1 for step in steps):
        return "step"
    return "epoch" if sum(steps) == 1 else ""


def _problem(subject: Subject, scheduler: Any, interval: str, per_epoch: int, low: float) -> str | None:
    """What a schedule does that it cannot have been made for."""
    if interval == "epoch":
        return _by_epoch(subject, scheduler, per_epoch, low)
    is_told = interval == "step" and can_be_followed(scheduler, per_epoch)
    return made_for_epochs(scheduler, per_epoch, subject.settings.get("max_epochs")) if is_told else None


def _initial_rates(scheduler: Any) -> list[float]:
    """The rates that a schedule starts from."""
    return [float(group.get("initial_lr", 0.0)) for group in scheduler.optimizer.param_groups]


def _by_epoch(subject: Subject, scheduler: Any, per_epoch: int, low: float) -> str | None:
    if isinstance(scheduler, lr_scheduler.OneCycleLR) and scheduler.total_steps > max(per_epoch, 50):
        return f"its cycle of {scheduler.total_steps} steps would take as many epochs, of {per_epoch} batches each"
    if isinstance(scheduler, lr_scheduler.CyclicLR) and scheduler.total_size >= per_epoch:
        return f"a cycle takes {scheduler.total_size:g} epochs"
    if per_epoch > 1 and all(group["lr"] == 0 for group in scheduler.optimizer.param_groups):
        return f"the rate is 0 in all {per_epoch} batches of the first epoch"
    rates, full = next_rates(scheduler, 10), _initial_rates(scheduler)[0]
    if 0 < rates[0] < rates[-1] < low * full:
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
    call = origins.call_at(place, type(scheduler).__name__) if place is not None else None
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
        rates = next_rates(scheduler, ahead + max(10, number // 10))
    except Exception:  # of a rule of the user's that has no such step, and so has ended before
        return False
    return rates[ahead] != rates[ahead - 1] and len(set(rates[ahead:])) == 1


def _is_never_stepped(subject: Subject) -> bool:
    groups = [group for optimizer in subject.trainer.optimizers for group in optimizer.param_groups]
    if not any("initial_lr" in group for group in groups):  # which schedules write
        return False
    counts = rehearsal_notes(subject, _Watch).counts
    return all(count == counts[0] for count in counts)


def _is_switched_off(place: Place) -> bool:
    """Whether code in a comment of the same function has what is made here: `return [optimizer]  # , [schedule]`."""
    function = source.function_at(place) or ast.Pass()
    assignments = [node for node in ast.walk(function) if isinstance(node, ast.Assign) and node.lineno == place.line]
    lines = [Place(place.file, line).code for line in range(place.line, getattr(function, "end_lineno", 0) + 1)]
    comments = [line.partition("#")[2].strip(" ,") for line in lines]
    codes = [text for text in comments if source.is_code(text)]
    return any(
        re.search(rf"\b{re.escape(ast.unparse(node.targets[0]))}\b", text) for node in assignments for text in codes
    )


class _Watch(Watch):
    """Notes the counters of schedules at the start of every batch."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.counts: list[list[int]] = []

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        schedules = [item for item in origins.living_objects(LRScheduler) if item.optimizer in trainer.optimizers]
        self.counts.append([item.last_epoch for item in schedules])


def _place(subject: Subject, schedules: list[LRScheduler]) -> Place | None:
    """The schedule's construction, or of one that is lost already that in the source."""
    method = type(subject.model).configure_optimizers
    types = [kind for kind in vars(lr_scheduler).values() if isinstance(kind, type)]
    kinds = [kind.__name__ for kind in types if issubclass(kind, LRScheduler)]
    return (
        next(filter(None, map(origins.maker, schedules)), None)
        or source.first_call([method, *source.classes_of(subject.model)], *kinds)
        or source.definition(method)
    )
