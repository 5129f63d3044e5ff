"""Runs a script for real with shortened loaders, to find what a replayed step cannot show."""

import ast
import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from itertools import groupby, pairwise, takewhile
from pathlib import Path
from typing import Any, NoReturn

from lightning.fabric.utilities.data import sized_len
from torch import Tensor, nn
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import ChainedScheduler, LRScheduler, OneCycleLR, ReduceLROnPlateau, SequentialLR
from torch.optim.optimizer import register_optimizer_step_pre_hook

from torchdoctor import source
from torchdoctor.evidence import failure, origins
from torchdoctor.evidence.evaluation import GRAPH_IN_EVAL, is_trained_and_mode_dependent
from torchdoctor.evidence.planned_rates import InitialState, can_be_followed, falls, made_for_epochs
from torchdoctor.findings import Finding, NotLookedAt, Place
from torchdoctor.probes.evaluation.modes import STUCK_IN_EVAL
from torchdoctor.probes.execution.retained import GRAPH_RETAINED
from torchdoctor.probes.optimization.clipping import ClippingWatch
from torchdoctor.probes.optimization.kept_weights import KeptWeightsWatch
from torchdoctor.probes.optimization.recreated_optimizers import RecreationWatch
from torchdoctor.probes.optimization.schedule import SCHEDULER_CADENCE
from torchdoctor.probes.optimization.zero_grad import ZeroingWatch
from torchdoctor.registry import all_probes
from torchdoctor.running.graph import maker, nodes
from torchdoctor.running.training import RATE_FOR_FACTOR, parameters_of, rate_for_factor, weights_of
from torchdoctor.scripts import hold, notes
from torchdoctor.scripts.aliases import Aliases
from torchdoctor.scripts.evaluations import Evaluations
from torchdoctor.scripts.folder import is_forbidden
from torchdoctor.scripts.module import roots_of
from torchdoctor.scripts.notes import Backward, Loading, Stack

BATCHES = 8  # of each iteration over a loader
_GRAPHS, _MOST_GRAPHS, _LEVEL = 8, 30, 4  # steps after which living graphs are counted; if they grow; that are alike
_LEAST = 4  # steps that a finding needs
_ALIKE = 1.25  # times the least, what steps add at most that add alike


def _watched() -> set[str]:
    """Ids of the defects that a rehearsal looks for."""
    return {GRAPH_IN_EVAL.id, *(defect.id for probe in all_probes().values() for defect in probe.by_rehearsal)}


def rehearse(script: Path, arguments: list[str], answer: Path, limit_s: float, longest: int | None) -> NoReturn:
    """Runs a script to its end or the time limit, writes the findings as JSON and ends the process.

    Args:
        script: the file, in a copy of its folder.
        arguments: of the script.
        answer: the file to write.
        limit_s: seconds.
        longest: batches of each iteration over a loader; None leaves them all.
    """
    watch = _Rehearsal()

    def finish(has_ended: bool, error: BaseException | None = None) -> NoReturn:
        signal.alarm(0)
        items = list(watch.look(has_ended)) if watch.num_steps else []
        unseen = {item.defect.id for item in items if isinstance(item, NotLookedAt)}
        content: dict[str, Any] = {
            "findings": [item.as_dict() | {"probe": "rehearsal"} for item in items if isinstance(item, Finding)],
            "checked": [item for item in items if isinstance(item, str)],
            "looked_for": sorted(_watched() - unseen) if has_ended else [],
            "notes": [str(item) for item in items if isinstance(item, NotLookedAt)],
        }
        if has_ended:
            content["checked"].append(f"the script runs to its end ({watch.num_steps} steps)")
        elif error is None:
            content["notes"].append(f"the script's end: it runs for more than {limit_s:g} s")
        elif is_forbidden(error) or isinstance(error, EOFError):  # of `input`, which nobody answers
            place = failure.as_finding(error).place
            where = f"{Path(place.file).name}:{place.line}" if place is not None else "a call"
            text = " ".join(str(error).split())
            content["notes"].append(f"what follows {where}, which the review refuses: {text}")
        else:
            content["crash"] = failure.as_finding(error).as_dict() | {"probe": "rehearsal"}
        answer.write_text(json.dumps(content), encoding="utf-8")
        os._exit(0)

    signal.signal(signal.SIGALRM, lambda *_: finish(has_ended=False))
    signal.alarm(max(1, round(limit_s)))
    Loading.longest = longest
    watch.begin()
    try:
        hold.execute(script, arguments)
    except SystemExit:
        finish(has_ended=True)
    except BaseException as error:  # of the script
        finish(has_ended=False, error=error)
    finish(has_ended=True)


class _Rehearsal:
    """Observes a real run and derives findings."""

    def __init__(self) -> None:
        self.zeroing = ZeroingWatch()
        self.clipping = ClippingWatch()
        self.kept_weights = KeptWeightsWatch()
        self.optimizers = RecreationWatch()
        self.evaluations = Evaluations()
        self.aliases = Aliases()
        self.num_steps = 0
        self.models: dict[Optimizer, list[nn.Module]] = {}  # that it trains
        self.evaluating: dict[Optimizer, list[bool]] = {}  # at each of its steps, whether all are in evaluation mode
        self.eval_places: dict[int, Place] = {}
        self.stuck_at: dict[Optimizer, Place] = {}  # which `eval` came before its last step in evaluation mode
        self.graphs: list[tuple[Any, int]] = []  # at each step, the round over a loader, and the living nodes
        self.keeper: tuple[str, Place | None] = "a tensor", None
        self.calls: dict[LRScheduler, list[int]] = {}  # the number of steps before each call
        self.beginnings: dict[LRScheduler, InitialState] = {}  # of schedules that have been stepped
        self.measured: dict[ReduceLROnPlateau, list[float]] = {}  # what these were given
        self.rounds: list[tuple[Any, int]] = []  # iterations over loaders in which there were steps, and their number
        self.imported_before = set(sys.modules) - {"__main__"}

    def begin(self) -> None:
        """Starts observing, for the rest of this process."""

        def backward(*args: Any, **kwargs: Any) -> Any:
            self.zeroing.before_backward()
            self.clipping.forget_zeroed()
            self.evaluations.forget()
            return Backward.original(*args, **kwargs)

        def evaluate(module: nn.Module, original: Callable[..., nn.Module] = nn.Module.eval) -> nn.Module:
            places, _ = source.callers(sys._getframe(1))
            if places:
                self.eval_places[id(module)] = places[0]
            return original(module)

        Backward.act = backward
        nn.Module.eval = evaluate  # type: ignore[method-assign]
        self.zeroing.begin()
        self.clipping.begin()
        self.kept_weights.begin()
        self.optimizers.begin()
        self.optimizers.round = _iteration
        self.evaluations.begin()
        register_optimizer_step_pre_hook(self._before_step)
        for kind in vars(lr_scheduler).values():
            if isinstance(kind, type) and issubclass(kind, LRScheduler) and "step" in vars(kind):
                kind.step = self._noting(kind.step)

    def _noting(self, original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def step(schedule: LRScheduler, *args: Any, **kwargs: Any) -> None:
            calls = self.calls.setdefault(schedule, [])
            calls += [self.num_steps] if self.num_steps else []  # it calls itself when it is made
            if isinstance(schedule, ReduceLROnPlateau) and (args or kwargs):
                self.measured.setdefault(schedule, []).append(float(next(iter((*args, *kwargs.values())))))
            if self.num_steps and schedule not in self.beginnings:
                self.beginnings[schedule] = InitialState(schedule)
            original(schedule, *args, **kwargs)

        return step

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self.num_steps += 1
        iteration = _iteration()
        if not self.rounds or self.rounds[-1][0][1] is not iteration[1]:
            self.rounds.append((iteration, 0))
        self.rounds[-1] = (iteration, self.rounds[-1][1] + 1)
        self.zeroing.before_step(optimizer, args, kwargs)
        self.aliases.before_step(notes.stack(sys._getframe(1)), weights_of(optimizer))
        if optimizer not in self.models:
            self.models[optimizer] = roots_of(parameters_of([optimizer]))
            self.evaluations.watch(self.models[optimizer])
        models = self.models[optimizer]
        is_evaluating = bool(models) and not any(model.training for model in models)
        self.evaluating.setdefault(optimizer, []).append(is_evaluating)
        places = [self.eval_places[id(model)] for model in models if id(model) in self.eval_places]
        if is_evaluating and places:
            self.stuck_at[optimizer] = places[0]
        if len(self.graphs) < (_MOST_GRAPHS if self._growth() else _GRAPHS):
            gc.collect()
            living = len({node for tensor in notes.living_objects(Tensor) for node in nodes(maker(tensor))})
            self.graphs.append((_iteration(), living))
            if len(self.graphs) <= _GRAPHS and self._growth():
                self.keeper = _graph_keeper(notes.stack(sys._getframe(1)))

    def _growth(self) -> list[int]:
        """The number of live graph nodes from the second step on, if it grows steadily or in every epoch."""
        rounds = [[nodes for _, nodes in part][1:] for _, part in groupby(self.graphs, key=lambda each: id(each[0]))]
        whole, parts = [nodes for _, nodes in self.graphs[1:_GRAPHS]], [part for part in rounds if len(part) >= _LEAST]
        for first, others in ((whole, []), (next(iter(rounds), []), parts)):
            if len(first) >= _LEAST and all(map(_rises, (first, *others))) and (_doubles(first) or _is_steady(first)):
                return first
        return []

    def look(self, has_ended: bool) -> Iterator[Finding | str | NotLookedAt]:
        """Yields the findings.

        Args:
            has_ended: whether the script came to its own end.
        """
        yield from self.zeroing.look()
        yield from self.clipping.look()
        yield from self.kept_weights.look()
        if has_ended:
            yield from self.kept_weights.look_at_end(source.imported(besides=self.imported_before))
        yield from self.aliases.look()
        yield from self.optimizers.look()
        yield from self.evaluations.look()
        yield from self._modes()
        yield from self._graph()
        yield from self._schedules(has_ended)

    def _modes(self) -> Iterator[Finding | str | NotLookedAt]:
        for optimizer, evaluating in self.evaluating.items():
            last = len(list(takewhile(bool, reversed(evaluating))))
            models, place = self.models[optimizer], self.stuck_at.get(optimizer)
            if last < _LEAST or place is None:
                continue
            defect, message = STUCK_IN_EVAL, f"the last {last} of {len(evaluating)} steps ran in evaluation mode"
            if not any(map(is_trained_and_mode_dependent, models)):
                defect = replace(defect, severity="advice")
                message += "; this model has no dropout and no norm, so nothing differs yet"
            yield Finding(defect, place, message, "model.train()  # before each epoch of training")
            return
        if any(evaluating[-1] for evaluating in self.evaluating.values()):
            yield NotLookedAt(
                STUCK_IN_EVAL, "the last steps ran in evaluation mode, which no line of the script asks for"
            )
        elif self.evaluating:
            yield "training runs in training mode"

    def _graph(self) -> Iterator[Finding | str | NotLookedAt]:
        if len(self.graphs) <= _LEAST:
            return
        growth = self._growth()
        counts = [number for _, number in self.graphs[1:]]
        if not growth and counts[-1] > counts[0] and all(later >= earlier for earlier, later in pairwise(counts)):
            yield NotLookedAt(GRAPH_RETAINED, "graphs grow in some steps, and in others they do not")
            return
        if not growth:
            yield "no graphs pile up from step to step"
            return
        if any(len(list(group)) >= _LEVEL for _, group in groupby(nodes for _, nodes in self.graphs)):
            return  # a window of the last ones is kept
        name, place = self.keeper
        counts = f"{growth[0]} nodes at step 2, {growth[-1]} at step {len(growth) + 1}"
        yield Finding(GRAPH_RETAINED, place, f"{name} keeps its graph: {counts}", f"{name} … loss.detach()")

    def _schedules(self, has_ended: bool) -> Iterator[Finding | str | NotLookedAt]:
        is_whole = has_ended and not any(isinstance(each, SequentialLR | ChainedScheduler) for each in self.calls)
        per_epoch = max((sized_len(loader) or 0 for loader, _ in notes.iterations), default=0)
        for optimizer in self.models:
            if "lr" in vars(optimizer) and type(optimizer).__module__.startswith("torch.optim"):
                message = f"{type(optimizer).__name__} has no rate of this name: those of its param_groups stay"
                fix = 'for group in optimizer.param_groups: group["lr"] = …'
                yield Finding(SCHEDULER_CADENCE, self._assigned("lr"), message, fix)
                return
        for schedule, values in self.measured.items():
            if schedule.mode == "max" and falls(values):
                message = (
                    f'mode "max" waits for higher values; those it gets fall from {values[0]:.3g} to {values[-1]:.3g}'
                )
                fix = 'ReduceLROnPlateau(optimizer, mode="min")'
                yield Finding(SCHEDULER_CADENCE, origins.maker(schedule), message, fix)
                return
        for schedule in self.calls:
            if problem := rate_for_factor(schedule):
                yield Finding(SCHEDULER_CADENCE, origins.maker(schedule), problem, RATE_FOR_FACTOR)
                return
        for schedule, calls in self.calls.items():
            place, name = origins.maker(schedule), type(schedule).__name__
            if is_whole and not calls and schedule.optimizer in self.models and not self._is_called(place):
                yield Finding(SCHEDULER_CADENCE, place, f"{name} is made, and never stepped", "scheduler.step()")
                return
            gap = min((later - earlier for earlier, later in pairwise([0, *calls])), default=0)
            if isinstance(schedule, OneCycleLR) and gap > 1 and schedule.total_steps > max(per_epoch, 50):
                message = f"{name} is stepped once in {gap} steps or more: its cycle takes {schedule.total_steps}"
                yield Finding(SCHEDULER_CADENCE, place, message, "scheduler.step()  # after every optimizer.step()")
                return
        yield from self._cadence(has_ended, is_whole)

    def _cadence(self, has_ended: bool, is_whole: bool) -> Iterator[Finding | str | NotLookedAt]:
        """Judges schedules that are stepped at every update."""
        num_updates, most = self._updates_of_epoch(), max((number for _, number in self.rounds), default=0)
        is_single = has_ended and len(self.rounds) == 1  # the schedule may end with it
        is_told = is_whole
        for schedule, beginning in self.beginnings.items():
            gaps = [later - earlier for earlier, later in pairwise([0, *self.calls[schedule]])]
            by_batch = len(gaps) >= _LEAST and max(gaps) == 1
            is_told &= can_be_followed(schedule, num_updates) and (by_batch or min(gaps) >= most)
            if is_single or not by_batch or not can_be_followed(schedule, num_updates):
                continue
            beginning.restore()
            if problem := made_for_epochs(schedule, num_updates, len(self.rounds) if has_ended else None):
                message = f"{type(schedule).__name__} is stepped once a batch: {problem}"
                fix = "scheduler.step()  # once an epoch, after the loop over its batches"
                yield Finding(SCHEDULER_CADENCE, origins.maker(schedule), message, fix)
                return
        if not is_told:
            reason = "a schedule is made of several, waits for what is measured, or has epochs of unknown length"
            yield NotLookedAt(SCHEDULER_CADENCE, reason)
        elif self.calls:
            yield "schedules are stepped"

    def _updates_of_epoch(self) -> int:
        """The number of updates in a full epoch; 0 if unknown."""
        (loader, _), most = max(self.rounds, key=lambda each: each[1], default=((None, None), 0))
        length = sized_len(loader) if loader is not None else None
        return round(most * length / min(length, Loading.longest or length)) if length else 0

    def _assigned(self, attribute: str) -> Place | None:
        """The script's first line that assigns this attribute of a variable."""
        for file in source.imported(besides=self.imported_before):
            nodes = [node for node in ast.walk(source.tree(file)) if isinstance(node, ast.Attribute)]
            for node in nodes:
                if (node.attr, type(node.ctx)) == (attribute, ast.Store) and ast.unparse(node.value) != "self":
                    return Place(file, node.lineno)
        return None

    def _is_called(self, place: Place | None) -> bool:
        """Whether the script steps the object constructed at a line anywhere, perhaps later than this run."""
        assigned = source.around(place, ast.Assign) if place is not None else []
        names = {_last_name(target) for node in assigned for target in node.targets}
        files = source.imported(besides=self.imported_before)
        calls = [call.func for file in files for call in source.calls(source.tree(file), "step")]
        return not names or any(isinstance(call, ast.Attribute) and _last_name(call.value) in names for call in calls)


def _rises(counts: list[int]) -> bool:
    return all(later > earlier for earlier, later in pairwise(counts))


def _doubles(counts: list[int]) -> bool:
    return counts[-1] > 2 * counts[0]


def _is_steady(counts: list[int]) -> bool:
    """Whether each step adds about the same number of nodes."""
    steps = [later - earlier for earlier, later in pairwise(counts)]
    return len(steps) >= _GRAPHS - 2 and max(steps) <= _ALIKE * min(steps)


def _iteration() -> tuple[Any, Any]:
    """The most recent iteration over a loader."""
    return notes.iterations[-1] if notes.iterations else (None, object())


def _last_name(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


def _graph_keeper(stack: Stack) -> tuple[str, Place | None]:
    """The variable that holds the largest graph in these frames, and the line that adds to it."""
    most = 0
    keeper: tuple[str, Place | None] = "a tensor", None
    for frame, _ in reversed(stack):
        for node in hold.own_nodes(hold.function_of(frame)):
            target = node.target if isinstance(node, ast.AugAssign) else None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
                target = node.func.value
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in map(ast.unparse, ast.walk(node.value)):
                target = node.targets[0]  # a running average
            value = hold.value_of(frame.f_locals, target) if target is not None else None
            parts = value if isinstance(value, list) else [value]
            number = len({node for part in parts if isinstance(part, Tensor) for node in nodes(maker(part))})
            if target is not None and number > most:
                most, keeper = number, (ast.unparse(target), Place(frame.f_code.co_filename, target.lineno))
    return keeper
