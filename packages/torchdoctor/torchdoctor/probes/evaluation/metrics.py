"""Metrics that are not reset between validations, or not moved to the device."""

import ast
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from torchdoctor import source
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running import sandbox
from torchdoctor.running.rehearsal import Watch, rehearsal_notes
from torchdoctor.running.subject import Subject
from torchdoctor.running.unchanged import log_nothing

METRIC_MISUSE = Defect(
    "metric-misuse",
    "warning",
    "The figures that are shown are not those of the epoch.",
    shown_by=Evidence("measured", "two short epochs with validation were run, and what they log was compared"),
)
_STEP_S = 10.0
_LARGE = 10**9  # that a count may be


def metrics(subject: Subject) -> Iterator[Finding | str]:
    """Trains two short epochs and looks at metrics and at the module's own counters before each validation.

    Reported: a metric of torchmetrics that still holds the last validation's samples, or training's, when the next one
    begins (Lightning resets what `self.log` got, and nothing else), if anyone reads these: a metric may be called for
    the values of single batches alone; counters and lists that validation steps add to, without a reset; metrics in
    plain lists, which stay on the CPU. A value that the same batch does not change once more, such as the best so far,
    is no counter.
    """
    if not subject.validates:
        return
    problems = [*_unregistered_metrics(subject), *rehearsal_notes(subject, _Watch).problems]
    seen: dict[str, Problem] = {}
    for problem in problems:
        seen.setdefault(problem[0], problem)
    for _, message, place, fix in seen.values():
        yield Finding(METRIC_MISUSE, place, message, fix)
    if not problems and any(isinstance(part, Metric) for part in subject.model.modules()):
        yield "metrics begin anew with every validation"


Problem = tuple[str, str, Place | None, str]


class _Watch(Watch):
    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.model = subject.model
        self.problems: list[Problem] = []
        self.growing: set[str] = set()  # metrics and attributes that validation steps add to
        self.unread: set[str] = set()  # metrics that are only called for a batch
        self.first: dict[str, Any] = {}
        self.runs = 0
        for name, part in self.model.named_modules():
            if isinstance(part, Metric) and name:
                self._note_reads(name, part)

    def _note_reads(self, name: str, metric: Metric) -> None:
        compute, within = metric.compute, list[str]()

        def read(*args: Any, **kwargs: Any) -> Any:
            if not within:
                self.unread.discard(name)
            return compute(*args, **kwargs)

        self.unread.add(name)
        metric.compute = read
        metric.register_forward_pre_hook(lambda *_: within.append(name))
        metric.register_forward_hook(lambda *_: within.clear())

    def on_validation_batch_start(self, *arguments: Any, **_: Any) -> None:
        if arguments[3] > 0:  # the batch's number: what the hooks of the start reset has been
            return
        self.runs += 1
        self.before = _state(self.model)
        if self.runs == 1:
            self.first = self.before
        for name in self.growing - self.unread if self.runs == 2 else ():
            value = self.before.get(name)
            if not _is_read(self.model, name):
                continue
            is_metric = isinstance(dict(self.model.named_modules()).get(name), Metric)  # which the training counts in
            is_carried = bool(value) and (is_metric or value != self.first.get(name))
            if is_carried and not self._is_position(name, *arguments[2:4]):
                self.problems.append(_carried_over(self.model, name, value))

    def on_validation_batch_end(self, *arguments: Any, **_: Any) -> None:
        now, (batch, index) = _state(self.model), arguments[3:5]
        changed = {name for name, value in now.items() if value != self.before.get(name)}
        if changed - self.growing:  # the same batch once more leaves a best value as it is
            again = self._again(batch, index)
            self.growing |= {name for name in changed if again is None or again.get(name) != now[name]}

    def _is_position(self, name: str, batch: Any, index: int) -> bool:
        """Whether a number is a place in a queue, which wraps a large one or has no such place: a count goes on."""
        owner, _, attribute = name.rpartition(".")
        holder = self.model.get_submodule(owner)
        value = getattr(holder, attribute)
        if isinstance(value, Metric | list):
            return False
        large = torch.full_like(value, _LARGE) if isinstance(value, Tensor) else _LARGE
        state = self._again(batch, index, lambda: setattr(holder, attribute, large))
        return state is None or state[name] < _LARGE

    def _again(self, batch: Any, index: int, prepare: Callable[[], None] = lambda: None) -> dict[str, Any] | None:
        """The state after the batch once more; None if the step then fails."""

        def run() -> dict[str, Any]:
            prepare()
            log_nothing(self.model)
            self.subject.validate(batch, index)
            return _state(self.model)

        return sandbox.attempt(run, _STEP_S)


PROBE = Probe(look=metrics, defects=(METRIC_MISUSE,), needs=(Need.LIGHTNING,), watch=_Watch)


def _state(model: nn.Module) -> dict[str, Any]:
    """How often each metric was updated; the size of lists and the value of numbers among the module's attributes."""
    metrics = {name: part for name, part in model.named_modules() if isinstance(part, Metric) and name}
    state: dict[str, Any] = {name: metric._update_count for name, metric in metrics.items()}
    buffers = {name: value for name, value in model.named_buffers() if not name.endswith("num_batches_tracked")}
    for name, value in (vars(model) | buffers).items():
        if name.startswith("_"):
            continue
        if isinstance(value, list):
            state[name] = len(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            state[name] = value
        elif isinstance(value, Tensor) and value.dim() == 0:
            state[name] = value.item()
    return state


def _is_read(model: nn.Module, name: str) -> bool:
    """Whether a line of the module does more with a list than append to it."""
    if not isinstance(vars(model).get(name), list):
        return True
    uses = [node for _, node in source.in_methods(model) if isinstance(node, ast.Attribute)]
    loaded = [use for use in uses if use.attr == name and isinstance(use.ctx, ast.Load)]
    added = [use for use in uses if use.attr in ("append", "extend") and getattr(use.value, "attr", "") == name]
    return len(loaded) > len(added)


def _carried_over(model: nn.Module, name: str, value: Any) -> Problem:
    part = dict(model.named_modules()).get(name)
    if isinstance(part, Metric):
        message = f"{name} ({type(part).__name__}) still holds {value} batches when the next validation begins"
        place = _first_use(model, f"self.{name}.compute(") or _first_use(model, f"self.{name}")
        return name, message, place, f"self.{name}.reset()  # after compute()"
    message = f"self.{name} is {value} when the second validation begins: its steps add to it, nothing resets it"
    holder = name.partition(".")[0]
    place = _first_use(model, f"self.{name}") or _first_use(model, f"self.{holder}")
    return name, message, place, f"self.{name} = …  # reset in on_validation_epoch_start"


def _first_use(model: nn.Module, expression: str) -> Place | None:
    """The first statement outside of __init__ with an expression."""
    for place, node in source.in_methods(model):
        if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef) and expression in ast.unparse(node):
            return place
    return None


def _unregistered_metrics(subject: Subject) -> Iterator[Problem]:
    """Metrics in plain lists and dicts alone, which Lightning does not move to the device."""
    known = {id(module) for module in subject.model.modules()}
    for module in subject.model.modules():
        for name, value in vars(module).items():
            items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
            alone = [item for item in list(items) if isinstance(item, Metric) and id(item) not in known]
            if not name.startswith("_") and alone:
                kind = "nn.ModuleDict" if isinstance(value, dict) else "nn.ModuleList"
                message = f"self.{name}: metrics in a plain {type(value).__name__} stay on the CPU"
                yield name, message, source.assignment(module, name), f"self.{name} = {kind}(…)"
