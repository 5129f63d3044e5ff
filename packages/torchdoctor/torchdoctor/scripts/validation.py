"""Runs a held script on, without optimizing, until a model evaluates.

It does in evaluation mode, without gradients, or in a loop over another loader that calls no `backward`.
"""

import ast
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from traceback import walk_stack
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

from torchdoctor.evidence.contents import shared_samples
from torchdoctor.evidence.evaluation import depends_on_mode
from torchdoctor.findings import Finding, Place
from torchdoctor.probes.evaluation.eval_randomness import EVAL_NONDETERMINISM
from torchdoctor.running import sandbox
from torchdoctor.running.record import Record
from torchdoctor.scripts import notes
from torchdoctor.scripts.hold import HeldScript, Spot, begun_at, function_of, loop_around, own_nodes
from torchdoctor.scripts.notes import Loading, Stack
from torchdoctor.scripts.step import Step
from torchdoctor.scripts.unit import Unit, make_unit

_POLL_S, _LOOK_S = 0.02, 10.0
_CHOICES = ("argmax", "max", "topk", "sort", "eq", "__eq__", "gt", "__gt__", "round", "numpy", "tolist", "__array__")
_NO_CALLS = {method.__code__ for method in (nn.Module._apply, nn.Module.load_state_dict, nn.Module.state_dict)}


class ValidationWatch(TorchFunctionMode):
    """Calls `reached` with the validation unit and the model at the first call of a model that evaluates.

    Args:
        held: the script's training step.
        unit: of it.
        parts: the script's models.
        reached: returns where the script goes on.
    """

    def __init__(
        self, held: HeldScript, unit: Unit, parts: list[nn.Module], reached: Callable[[Unit, nn.Module], None]
    ) -> None:
        super().__init__()
        self.held, self.unit, self.reached = held, unit, reached
        self.trained = [part for part in parts if part.training]
        self.owners = {id(parameter): part for part in parts for parameter in part.parameters()}
        self.modules = {id(module) for part in parts for module in part.modules()}
        self.frames = {frame for frame, _ in notes.stack(held.spot.frame)}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        evaluates = self._has_turned or not torch.is_grad_enabled()
        used = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if id(leaf) in self.owners] if evaluates else []
        if used:
            stack = notes.stack(self._caller(sys._getframe(1)))
            unit = self._unit(stack) if stack and not self._is_training(stack) else None
            if unit is not None:
                self.reached(replace(unit, gradients=torch.is_grad_enabled()), self.owners[id(used[0])])
        return func(*args, **kwargs)

    @property
    def _has_turned(self) -> bool:
        """Whether a model has switched modes, or another loader yields its second batch without a `backward`."""
        is_quiet = Loading.num_quiet > 1 and Loading.latest not in self.unit.loaders
        return is_quiet or any(not part.training for part in self.trained)

    def _caller(self, frame: FrameType) -> FrameType | None:
        """The frame that called the outermost model, or the model's own frame if that iterates over a loader.

        None where one is moved or loaded, or an optimizer uses it.
        """
        methods = [frame for frame, _ in walk_stack(frame) if frame.f_code.co_varnames[:1] == ("self",)]
        if any(frame.f_code in _NO_CALLS for frame in methods):
            return None
        of_models = [frame for frame in methods if id(frame.f_locals.get("self")) in self.modules]
        for caller in reversed(of_models):
            loop = loop_around(caller, caller.f_lineno)
            if loop is not None and begun_at(loop, caller):
                return caller
        return of_models[-1].f_back if of_models else None

    def _is_training(self, stack: Stack) -> bool:
        """Whether this call belongs to the training step, as that of a teacher without gradients."""
        spot = self.held.spot
        inside = any(frame is spot.frame and spot.first <= line <= self.held.line for frame, line in stack)
        return inside and not self._other_loaders()

    def _other_loaders(self) -> list[DataLoader]:
        """The loaders that the training loop also evaluates on: `for phase in ["train", "val"]: …`."""
        if not self.unit.loaders or not self._has_turned:
            return []
        last = begun_at(self.unit.after[-1], self.held.spot.frame)[-1:]
        return [loader for loader in last if loader not in self.unit.loaders]

    def _unit(self, stack: Stack) -> Unit | None:
        """The unit of the innermost loop over a loader, or of the loop or statement that calls the model."""
        for frame, line in reversed(stack):
            single = [node for node in _statements_around(frame, line) if not hasattr(node, "body")]
            loaders = begun_at(single[-1], frame, itself=True) if single else []
            if any(loader not in self.unit.loaders for loader in loaders):  # `sum(… for batch in loader)`
                return make_unit(Spot(frame, None, line), single[-1])
            loop, spot = loop_around(frame, line), self.unit.spot
            is_own = loop is spot.loop and frame is spot.frame
            if loop is spot.loop is not None and not self._has_turned:
                return None  # a training step, perhaps of a later epoch
            others = self._other_loaders() if is_own else []
            unit = make_unit(Spot(frame, loop, line)) if others or not is_own else None
            if unit is not None and unit.loaders:
                loaders = others or unit.loaders
                if all(loader in self.unit.loaders for loader in loaders):
                    return None  # it tells how well the training data are learned
                return replace(unit, loaders=loaders)
        frame, line = stack[-1]
        loop, first = loop_around(frame, line), self.held.spot.first
        around = _statements_around(frame, line)
        if frame not in self.frames or (loop is not None and not loop.lineno <= first <= (loop.end_lineno or 0)):
            return make_unit(Spot(frame, loop, line))
        single = [node for node in around if isinstance(node, ast.With) or not hasattr(node, "body")]
        return make_unit(Spot(frame, None, line), single[0]) if single else None


def _statements_around(frame: FrameType, line: int) -> list[ast.stmt]:
    """The statements of a frame's function that span a line, outermost first."""
    statements = [node for node in own_nodes(function_of(frame)) if isinstance(node, ast.stmt)]
    return [node for node in statements if node.lineno <= line <= (node.end_lineno or 0)]


def evaluates_training_data(unit: Unit, step: Unit) -> bool:
    """Whether an evaluation uses training samples only."""
    trains, vals = ([loader.dataset for loader in each.loaders] for each in (step, unit))
    return bool(vals) and all(any(shared_samples(train, val)[0] == 1 for train in trains) for val in vals)


def in_training_mode(step: Step, unit: Unit, model: nn.Module, name: str) -> Finding | None:
    """A finding if a model evaluates with dropout or norms in training mode."""
    active = [part for part in model.modules() if part.training and depends_on_mode(part)]
    if not active or not unit.loaders:
        return None
    kinds = sorted({type(part).__name__ for part in active})
    kinds = sandbox.attempt(lambda: _layers_in_training_mode(step, unit, model), _LOOK_S, kinds)  # as most are
    if not kinds:
        return None
    line = unit.spot.loop.lineno if unit.spot.loop is not None else unit.spot.first
    place = Place(unit.spot.frame.f_code.co_filename, line)
    message = f"{name} evaluates these batches in training mode, with {' and '.join(kinds)}"
    return Finding(EVAL_NONDETERMINISM, place, message, f"{name}.eval()  # before; {name}.train() afterwards")


def _layers_in_training_mode(step: Step, unit: Unit, model: nn.Module) -> list[str]:
    """The types of layers that an evaluation runs in training mode; none if it only generates images or sounds."""
    weights = {id(parameter) for parameter in model.parameters()}
    with Record() as record:
        step.validate(unit, unit.first_batch())
    numbers = [op for op in record.ops if op.name in _CHOICES or any(not out.dim() for out in op.outputs)]
    if not any(not weights.isdisjoint(record.ancestors(leaf)) for op in numbers for leaf in op.inputs):
        return []
    called = {op.module for op in record.ops if op.module is not None}
    return sorted(
        {type(part).__name__ for part in called & set(model.modules()) if part.training and depends_on_mode(part)}
    )


def continue_in_fork(reached: Path, limit_s: float) -> bool:
    """Forks: returns True in the child, which may run the script on, and False in the parent once the child has ended.

    Args:
        reached: a file that the copy makes at the validation; from then on it has all the time that it needs.
        limit_s: seconds to get there.
    """
    process = os.fork()
    if process == 0:
        sandbox.end_with_parent()
        return True
    end = time.monotonic() + limit_s
    while os.waitpid(process, os.WNOHANG) == (0, 0):
        if time.monotonic() > end and not reached.exists():
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            break
        time.sleep(_POLL_S)
    return False
