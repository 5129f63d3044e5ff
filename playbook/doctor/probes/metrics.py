"""Metrics that carry over from one validation to the next, or stay on the CPU."""

import ast
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
from torch import Tensor, nn
from torchmetrics import Metric

from playbook.doctor import source
from playbook.doctor.findings import Defect, Finding, Place
from playbook.doctor.subject import Subject, Watch

METRIC_MISUSE = Defect("metric-misuse", "warning", "The figures that are shown are not those of the epoch.")
DEFECTS = (METRIC_MISUSE,)


def metrics(subject: Subject) -> Iterator[Finding | str]:
    """Trains two short epochs and looks at metrics and at the module's own counters before each validation.

    Reported: a metric of torchmetrics that still holds the last validation's samples, or training's, when the next one
    begins (Lightning resets what `self.log` got, and nothing else); counters and lists that validation steps add to and
    its end reads, without a reset; metrics in plain lists, which stay on the CPU.
    """
    if not subject.validates:
        return
    problems = [*_hidden(subject), *subject.watch(_Watch).problems]
    seen = set()
    for name, message, place, fix in problems:
        if name not in seen:
            seen.add(name)
            yield Finding(METRIC_MISUSE, place, message, fix)
    if not problems:
        yield "metrics begin anew with every validation"


Problem = tuple[str, str, Place | None, str]


class _Watch(Watch):
    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.model = subject.model
        self.problems: list[Problem] = []
        self.growing: set[str] = set()  # metrics and attributes that validation steps add to
        self.first: dict[str, Any] = {}
        self.runs = 0

    def on_validation_batch_start(self, *arguments: Any, **_: Any) -> None:
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
        now = _state(self.model)
        self.growing |= {name for name, value in now.items() if value != self.before.get(name)}


WATCH = _Watch


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
    place = _use(model, name, "") or _use(model, name.partition(".")[0], "")  # of the part that holds it
    return name, message, place, f"self.{name} = …  # reset in on_validation_epoch_start"


def _use(model: nn.Module, name: str, method: str) -> Place | None:
    """The first line outside of __init__ that reads an attribute, or calls this method of it."""
    wanted = f"self.{name}.{method}(" if method else f"self.{name}"
    for place, node in source.in_methods(model):
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
