"""Runs a script for real, with its loaders cut short, and watches gradients, modes, schedules and graphs."""

import ast
import gc
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import ChainedScheduler, LRScheduler, OneCycleLR, SequentialLR
from torch.optim.optimizer import register_optimizer_step_pre_hook

from playbook.doctor import blame, failure, source
from playbook.doctor.findings import Finding, Place
from playbook.doctor.graph import nodes
from playbook.doctor.probes.modes import STUCK_IN_EVAL, _matters
from playbook.doctor.probes.retained import GRAPH_RETAINED, _living_tensors
from playbook.doctor.probes.schedule import SCHEDULER_CADENCE
from playbook.doctor.probes.zero_grad import MISSING_ZERO_GRAD, _Watch
from playbook.doctor.scripts import hold, notes
from playbook.doctor.scripts.folder import is_forbidden
from playbook.doctor.scripts.hold import own_nodes
from playbook.doctor.scripts.module import roots_of
from playbook.doctor.scripts.notes import Backward, Loading, Stack

BATCHES = 8  # of each iteration over a loader
_GRAPHS = 8  # steps after which living graphs are counted
_LEAST = 4  # steps that a finding needs
_WATCHED = (GRAPH_RETAINED, MISSING_ZERO_GRAD, SCHEDULER_CADENCE, STUCK_IN_EVAL)


@dataclass
class Steps:
    """What was seen at the steps of one optimizer.

    Attributes:
        models: that it trains.
        evaluating: at each step, whether all of them were in evaluation mode.
    """

    models: list[nn.Module]
    evaluating: list[bool] = field(default_factory=list)


class Rehearsal:
    """Notes of a real run, and what they mean."""

    def __init__(self) -> None:
        self.zeroing = _Watch()
        self.steps: dict[Optimizer, Steps] = {}
        self.num_steps = 0
        self.graphs: list[int] = []
        self.keeper: tuple[str, Place] | None = None
        self.calls: dict[LRScheduler, list[int]] = {}  # of each schedule: the number of steps before each call
        self.eval_places: dict[int, Place] = {}
        self.imported_before = set(sys.modules) - {"__main__"}

    def watch(self) -> None:
        """Begins to take notes in this process, for good."""

        def backward(*args: Any, **kwargs: Any) -> Any:
            self.zeroing.before_backward()
            return Backward.original(*args, **kwargs)

        def evaluate(module: nn.Module, original: Callable[..., nn.Module] = nn.Module.eval) -> nn.Module:
            stack = notes.stack(sys._getframe(1))
            if stack:
                self.eval_places[id(module)] = Place(stack[-1][0].f_code.co_filename, stack[-1][1])
            return original(module)

        Backward.act = backward
        nn.Module.eval = evaluate  # type: ignore[method-assign]
        register_optimizer_step_pre_hook(self._before_step)
        for kind in vars(lr_scheduler).values():
            if isinstance(kind, type) and issubclass(kind, LRScheduler) and "step" in vars(kind):
                kind.step = self._noting(kind.step)

    def _noting(self, original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def step(schedule: LRScheduler, *args: Any, **kwargs: Any) -> None:
            calls = self.calls.setdefault(schedule, [])
            if self.num_steps:  # it calls itself when it is made
                calls.append(self.num_steps)
            original(schedule, *args, **kwargs)

        return step

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self.num_steps += 1
        self.zeroing.before_step(optimizer, args, kwargs)
        if optimizer not in self.steps:
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            self.steps[optimizer] = Steps(roots_of(parameters))
        steps = self.steps[optimizer]
        steps.evaluating.append(bool(steps.models) and not any(model.training for model in steps.models))
        if len(self.graphs) < _GRAPHS:
            gc.collect()
            self.graphs.append(len({node for tensor in _living_tensors() for node in nodes(tensor.grad_fn)}))
            if self._is_growing():
                self.keeper = _keeper(notes.stack(sys._getframe(1)))

    def _is_growing(self) -> bool:
        later = self.graphs[1:]
        return len(later) >= _LEAST and all(b > a for a, b in pairwise(later)) and later[-1] > 2 * later[0]

    def findings(self, has_ended: bool) -> list[Finding | str]:
        """What the notes mean.

        Args:
            has_ended: whether the script came to its own end.
        """
        found = [self._zeroing(), self._modes(), self._graph(), self._schedules(has_ended)]
        return [item for item in found if item is not None]

    def _zeroing(self) -> Finding | str | None:
        if not self.zeroing.counts:
            return None
        steps, stale = max(self.zeroing.counts.values(), key=lambda counts: counts[1])
        if steps < _LEAST or stale < steps - 2:
            return "gradients are zeroed between steps" if steps >= _LEAST else None
        message = f"{stale} of {steps} steps added their gradients to those of the step before"
        return Finding(
            MISSING_ZERO_GRAD, self.zeroing.place, message, "optimizer.zero_grad()  # before loss.backward()"
        )

    def _modes(self) -> Finding | str | None:
        for steps in self.steps.values():
            last = steps.evaluating[::-1].index(False) if False in steps.evaluating else len(steps.evaluating)
            if last < _LEAST:
                continue
            place = next((self.eval_places[id(m)] for m in steps.models if id(m) in self.eval_places), None)
            if place is None:
                continue
            message = f"the last {last} of {len(steps.evaluating)} steps ran in evaluation mode"
            if not any(map(_matters, steps.models)):
                message += "; this model has no dropout and no norm, so nothing differs yet"
            return Finding(STUCK_IN_EVAL, place, message, "model.train()  # before each epoch of training")
        return "training runs in training mode" if self.steps else None

    @property
    def is_harmless(self) -> bool:
        """Whether evaluation mode changes nothing in what is trained."""
        return not any(_matters(model) for steps in self.steps.values() for model in steps.models)

    def _graph(self) -> Finding | str | None:
        if len(self.graphs) <= _LEAST:
            return None
        if not self._is_growing():
            return "no graph outlives its step"
        name, place = self.keeper or ("a tensor", None)
        counts = f"{self.graphs[1]} nodes at step 2, {self.graphs[-1]} at step {len(self.graphs)}"
        return Finding(GRAPH_RETAINED, place, f"{name} keeps its graph: {counts}", f"{name} … loss.item()")

    def _schedules(self, has_ended: bool) -> Finding | str | None:
        nested = any(isinstance(schedule, SequentialLR | ChainedScheduler) for schedule in self.calls)
        for schedule, calls in self.calls.items():
            place = blame.maker(schedule)
            name = type(schedule).__name__
            unused = not calls and schedule.optimizer in self.steps and not self._is_called(place)
            if has_ended and unused and not nested:
                return Finding(SCHEDULER_CADENCE, place, f"{name} is made, and never stepped", "scheduler.step()")
            per_epoch = max((_length(loader) for loader, _ in notes.iterations), default=0)
            gaps = [later - earlier for earlier, later in pairwise([0, *calls])]
            if (
                isinstance(schedule, OneCycleLR)
                and gaps
                and min(gaps) > 1
                and schedule.total_steps > max(per_epoch, 50)
            ):
                message = f"{name} is stepped once in {min(gaps)} steps or more: its cycle takes {schedule.total_steps}"
                return Finding(SCHEDULER_CADENCE, place, message, "scheduler.step()  # after every optimizer.step()")
        return "schedules are stepped" if self.calls and has_ended and not nested else None

    def _is_called(self, place: Place | None) -> bool:
        """Whether the script says somewhere that what is made at a line steps: perhaps later than this run goes."""
        if place is None:
            return True
        names = {_last_name(target) for node in source.around(place, ast.Assign) for target in node.targets}
        modules = [module for name, module in sys.modules.items() if name not in self.imported_before]
        files = {getattr(module, "__file__", None) or "" for module in modules}
        users = [file for file in files if file.endswith(".py") and source.is_user(file)]
        calls = [call.func for file in users for call in source.calls(source.tree(file), "step")]
        return not names or any(isinstance(call, ast.Attribute) and _last_name(call.value) in names for call in calls)


def _last_name(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


def _length(loader: Any) -> int:
    try:
        return len(loader)
    except TypeError:
        return 0


def _keeper(stack: Stack) -> tuple[str, Place] | None:
    """The variable of these frames that gathers graphs, and the line that adds to it."""
    for frame, _ in reversed(stack):
        for node in own_nodes(hold.function_of(frame)):
            if isinstance(node, ast.AugAssign):
                target = node.target
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                called = node.value.func
                target = called.value if isinstance(called, ast.Attribute) and called.attr == "append" else None
            else:
                continue
            value = frame.f_locals.get(target.id) if isinstance(target, ast.Name) else None
            held = value if isinstance(value, list) else [value]
            if any(isinstance(item, torch.Tensor) and item.grad_fn is not None for item in held):
                return ast.unparse(target), Place(frame.f_code.co_filename, node.lineno)  # type: ignore[arg-type]
    return None


def rehearse(script: Path, arguments: list[str], answer: Path, limit_s: float, longest: int | None) -> NoReturn:
    """Runs a script until its end or for so long, writes what was seen as JSON and ends the process.

    Args:
        script: the file, in a copy of its folder.
        arguments: of the script.
        answer: the file to write.
        limit_s: seconds.
        longest: batches of each iteration over a loader; None leaves them all.
    """
    rehearsal = Rehearsal()

    def finish(has_ended: bool, error: BaseException | None = None) -> NoReturn:
        signal.alarm(0)
        items = rehearsal.findings(has_ended) if rehearsal.num_steps else []
        content: dict[str, Any] = {
            "findings": [item.as_dict() | {"probe": "rehearsal"} for item in items if isinstance(item, Finding)],
            "checked": [item for item in items if isinstance(item, str)],
            "looked_for": [defect.id for defect in _WATCHED] if has_ended else [],
            "notes": [] if has_ended or error else [f"the script's end: it runs for more than {limit_s:g} s"],
        }
        for item in content["findings"]:
            if item["id"] == STUCK_IN_EVAL.id and rehearsal.is_harmless:
                item["severity"] = "advice"
        if error is not None and is_forbidden(error):
            content["notes"].append(f"what follows {failure.as_finding(error).place}: {' '.join(str(error).split())}")
        elif error is not None:
            content["crash"] = failure.as_finding(error).as_dict() | {"probe": "rehearsal"}
        if has_ended:
            content["checked"].append(f"the script runs to its end ({rehearsal.num_steps} steps)")
        answer.write_text(json.dumps(content), encoding="utf-8")
        os._exit(0)

    signal.signal(signal.SIGALRM, lambda *_: finish(has_ended=False))
    signal.alarm(max(1, round(limit_s)))
    Loading.longest = longest
    rehearsal.watch()
    try:
        hold.execute(script, arguments)
    except SystemExit:
        finish(has_ended=True)
    except BaseException as error:  # of the script
        finish(has_ended=False, error=error)
    finish(has_ended=True)
