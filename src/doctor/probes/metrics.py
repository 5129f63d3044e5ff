"""Metrics that carry over from one validation to the next, or average what they should not."""

import ast
from collections.abc import Callable, Iterator
from functools import wraps
from sys import _getframe
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric, Metric

from src.doctor import source
from src.doctor.batches import num_samples
from src.doctor.dependence import mapped
from src.doctor.findings import Finding, Place
from src.doctor.subject import Subject, rehearse

IDS = ("metric-misuse",)
_ENDS = ("on_validation_epoch_end", "on_validation_end", "validation_epoch_end")


def metrics(subject: Subject) -> Iterator[Finding | str]:
    """Trains two short epochs and looks at metrics and at the module's own counters before each validation.

    Reported: a metric of torchmetrics that still holds the last validation's samples, or training's, when the next one
    begins (Lightning resets what `self.log` got, and nothing else); counters and lists that validation steps add to and
    its end reads, without a reset; metrics in plain lists, which stay on the CPU; a plain mean of batch means where the
    last batch is shorter, also by a MeanMetric that is updated with such means and no weight.

    A MeanMetric is spared if it gets the values of all samples or a weight, if nobody computes it over the batches
    (`self.log(name, meter(loss))` has Lightning weigh them), and unless the mean of two unequal parts of a batch, by
    their sizes, is what it gets for the whole: sums, counts, extremes and settings as a learning rate are not so.
    """
    if not subject.validates:
        return
    watch = _Watch(subject)
    rehearse(subject, watch, epochs=2, train_batches=3, val_batches=3)
    problems = [*_hidden(subject), *watch.problems, *_means(subject, watch), *_unweighted(subject, watch.fed)]
    seen = set()
    for name, message, place, fix in problems:
        if name not in seen:
            seen.add(name)
            yield Finding("metric-misuse", place, message, fix)
    if not problems:
        yield "metrics begin anew with every validation"


Problem = tuple[str, str, Place | None, str]


class _Watch(pl.Callback):
    def __init__(self, subject: Subject) -> None:
        self.model = subject.model
        self.problems: list[Problem] = []
        self.growing: set[str] = set()  # metrics and attributes that validation steps add to
        self.first: dict[str, Any] = {}
        self.runs = 0
        self.fed = _Fed(subject.model)

    def on_validation_batch_start(self, *arguments: Any, **_: Any) -> None:
        self.fed.validating = True
        if arguments[3] > 0:  # the batch's number: what the hooks of the start reset has been
            return
        self.runs += 1
        state = _state(self.model)
        if self.runs == 1:
            self.first = state
        for name in self.growing if self.runs == 2 else ():
            if state.get(name) != self.first.get(name) and not _is_empty(state.get(name)):
                self.problems.append(_carried(self.model, name, state[name]))
        self.before = state

    def on_validation_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        self.fed.validating = False
        now = _state(self.model)
        self.growing |= {name for name, value in now.items() if value != self.before.get(name)}


class _Fed:
    """What the MeanMetrics of a model are updated with while it validates.

    Args:
        model: whose metrics note it from here on.
    """

    def __init__(self, model: nn.Module) -> None:
        self.validating = False
        self.values: dict[str, list[float]] = {}  # single numbers without a weight
        self.places: dict[str, Place] = {}
        self.weighed: set[str] = set()  # metrics that got weights, or several values at once
        self.computed: set[str] = set()  # metrics of which more than one batch's value is asked for
        parts = dict(model.named_modules())
        for name, part in parts.items():
            within = parts.get(name.rpartition(".")[0])
            if not isinstance(part, MeanMetric) or isinstance(within, Metric):
                continue
            if type(part).update is MeanMetric.update:
                part.update = self._noting(name, part.update)
                part.compute = self._computing(name, part)

    def _noting(self, name: str, update: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(update)
        def noting(value: Any, weight: Any = None) -> Any:
            if self.validating:
                plain = (not isinstance(value, Tensor) or value.numel() == 1) and weight is None
                places, _ = source.callers(_getframe(1))
                if plain and places:
                    self.values.setdefault(name, []).append(float(value))
                    self.places.setdefault(name, places[0])
                else:
                    self.weighed.add(name)
            return update(value, weight)

        return noting

    def _computing(self, name: str, metric: Metric) -> Callable[..., Any]:
        compute = metric.compute

        @wraps(compute)
        def computing() -> Any:
            if metric._should_unsync:  # or it is called for the value of one batch, by forward
                self.computed.add(name)
            return compute()

        return computing

    def by(self, subject: Subject, batch: Any) -> dict[str, list[float]]:
        """What the metrics get from the validation of one batch."""
        self.values = {}
        torch.manual_seed(0)
        self.validating = True
        try:
            with subject.unchanged(), subject.evaluating():
                subject.validate(batch)
        finally:
            self.validating = False
        return self.values


def _unweighted(subject: Subject, fed: _Fed) -> Iterator[Problem]:
    """MeanMetrics over batch means, with a shorter last batch."""
    names = (fed.places.keys() & fed.computed) - fed.weighed
    if not names or not _is_uneven(subject):
        return
    unlike, alike = set[str](), set[str]()
    for batch in subject.val_batches:
        number = num_samples(batch) or 0
        cut = number // 3
        if not cut:
            continue
        try:
            whole = fed.by(subject, batch)
            one = fed.by(subject, mapped(batch, lambda leaf, cut=cut: leaf[:cut]))
            two = fed.by(subject, mapped(batch, lambda leaf, cut=cut: leaf[cut:]))
        except Exception:  # of a step that needs the whole batch: nothing can be told
            return
        for name in names:
            fits = _is_mean(whole.get(name, []), one.get(name, []), two.get(name, []), cut / number)
            if fits is not None:
                (alike if fits else unlike).add(name)
    for name in sorted(alike - unlike):
        message = (
            f"{name} (MeanMetric) gets batch means without a weight: the shorter last batch counts as much as others"
        )
        yield name, message, fed.places[name], "meter.update(value, weight=len(x))  # or the values of all samples"


def _is_mean(whole: list[float], one: list[float], two: list[float], share: float) -> bool | None:
    """Whether what a batch gives is the mean of what two parts of it give; nothing, if these are the same."""
    if not len(whole) == len(one) == len(two):
        return False  # a number a sample
    told = None
    for value, first, second in zip(whole, one, two, strict=True):
        apart = abs(first - second)
        if not apart > 1e-4 * max(abs(first), abs(second)):
            continue
        if not abs(value - share * first - (1 - share) * second) < 0.01 * apart:
            return False
        told = True
    return told


def _state(model: nn.Module) -> dict[str, Any]:
    """How often each metric was updated; the size of lists and the value of numbers among the module's attributes."""
    state: dict[str, Any] = {
        name: part._update_count for name, part in model.named_modules() if isinstance(part, Metric) and name
    }
    for name, value in vars(model).items():
        if name.startswith("_"):
            continue
        if isinstance(value, list):
            state[name] = len(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            state[name] = value
        elif isinstance(value, Tensor) and value.dim() == 0:
            state[name] = value.item()
    for name, buffer in model.named_buffers():
        owner = name.rpartition(".")[0]
        if buffer.dim() == 0 and not isinstance(model.get_submodule(owner), nn.modules.batchnorm._NormBase):
            state[name] = buffer.item()
    return state


def _is_empty(value: Any) -> bool:
    return value is None or value == 0


def _carried(model: nn.Module, name: str, value: Any) -> Problem:
    part = dict(model.named_modules()).get(name)
    if isinstance(part, Metric):
        message = f"{name} ({type(part).__name__}) still holds {value} batches when the next validation begins"
        return (
            name,
            message,
            _use(model, name, "compute") or _use(model, name, ""),
            f"self.{name}.reset()  # after compute()",
        )
    message = f"self.{name} is {value} when the second validation begins: its steps add to it, nothing resets it"
    return name, message, _use(model, name, ""), f"self.{name} = …  # reset in on_validation_epoch_start"


def _use(model: nn.Module, name: str, method: str) -> Place | None:
    """The first line outside of __init__ that reads an attribute, or calls this method of it."""
    wanted = f"self.{name}.{method}(" if method else f"self.{name}"
    for cls in source.classes_of(model):
        functions = [value for own, value in vars(cls).items() if callable(value) and own != "__init__"]
        for place, node in source.statements(*functions):
            if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef) and wanted in ast.unparse(node):
                return place
    return None


def _hidden(subject: Subject) -> Iterator[Problem]:
    for module in subject.model.modules():
        for name, value in vars(module).items():
            items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
            if not name.startswith("_") and any(isinstance(item, Metric) for item in list(items)):
                kind = "nn.ModuleDict" if isinstance(value, dict) else "nn.ModuleList"
                message = f"self.{name}: metrics in a plain {type(value).__name__} stay on the CPU"
                yield name, message, source.assignment(module, name), f"self.{name} = {kind}(…)"


def _means(subject: Subject, watch: _Watch) -> Iterator[Problem]:
    """Lists of batch means that the end of validation averages, with a shorter last batch."""
    if not _is_uneven(subject):
        return
    ends = [vars(type(subject.model)).get(name) for name in _ENDS]
    for place, node in source.statements(*ends):
        text = ast.unparse(node) if isinstance(node, ast.Call | ast.BinOp) else ""
        averages = "mean(" in text or ("sum(" in text and "/ len(" in text)
        for name in watch.growing if averages else ():
            if isinstance(getattr(subject.model, name, None), list) and f"self.{name}" in text and "cat(" not in text:
                message = f"the mean of batch means in self.{name} counts the shorter last batch as much as others"
                yield name, message, place, "self.log(name, value, on_epoch=True)  # weighs by batch size"
                return


def _is_uneven(subject: Subject) -> bool:
    for loader in subject.loaders("val")[:1]:
        try:
            sampler: Any = loader.sampler
            size, number = loader.batch_size or 0, len(sampler)
            return bool(size) and not loader.drop_last and number > size and number % size > 0
        except TypeError:
            return False
    return False
