"""Goes on with a held script, without optimizing, until a model evaluates: by its mode, or without gradients."""

import ast
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

from playbook.doctor.sandbox import end_with_parent
from playbook.doctor.scripts import notes
from playbook.doctor.scripts.hold import Held, Loop, Spot, function_of, own_nodes
from playbook.doctor.scripts.notes import Loading, Stack
from playbook.doctor.scripts.unit import Unit, begun_at, make_unit

_BATCHES = 2  # of each loader on the way
_POLL_S = 0.02


class ValidationWatch(TorchFunctionMode):
    """Calls `reached` with the validation unit at the first call of a model that evaluates.

    Args:
        held: the script's training step.
        unit: of it.
        parts: the script's models.
        reached: does not return.
    """

    def __init__(self, held: Held, unit: Unit, parts: list[nn.Module], reached: Callable[[Unit], None]) -> None:
        super().__init__()
        self.held, self.unit, self.parts, self.reached = held, unit, parts, reached
        self.training = [part.training for part in parts]
        self.weights = {id(parameter) for part in parts for parameter in part.parameters()}
        self.modules = {id(module) for part in parts for module in part.modules()}
        self.frames = {id(frame) for frame, _ in notes.stack(held.spot.frame)}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if self._evaluates() and any(id(leaf) in self.weights for leaf in pytree.tree_leaves((args, kwargs))):
            frame = self._caller(sys._getframe(1))
            stack = notes.stack(frame)
            if frame is not None and stack and not self._is_training(stack):
                unit = self._unit(stack)
                if unit is not None:
                    self.reached(replace(unit, gradients=torch.is_grad_enabled()))
        return func(*args, **kwargs)

    def _evaluates(self) -> bool:
        return self._is_turned or not torch.is_grad_enabled()

    @property
    def _is_turned(self) -> bool:
        return any(was and not part.training for was, part in zip(self.training, self.parts, strict=True))

    def _other_loaders(self) -> list[DataLoader]:
        """Those that the training's own loop goes through in evaluation mode: `for phase in ["train", "val"]: …`."""
        spot = self.held.spot
        if not self.unit.loaders or not self._is_turned:
            return []
        last = begun_at(self.unit.after[-1], spot.frame)[-1:]
        return [loader for loader in last if self._is_new(loader)]

    def _is_new(self, loader: DataLoader) -> bool:
        """Whether the training does not go through it: else it tells how well the training data are learned."""
        return all(loader is not own for own in self.unit.loaders)

    def _caller(self, frame: FrameType | None) -> FrameType | None:
        """The frame that called the outermost model; None outside of models: optimizers use weights as well."""
        found = None
        while frame is not None:
            own = frame.f_locals.get("self") if frame.f_code.co_varnames[:1] == ("self",) else None
            if isinstance(own, nn.Module) and id(own) in self.modules:
                found = frame.f_back
            frame = frame.f_back
        return found

    def _is_training(self, stack: Stack) -> bool:
        """Whether this is a part of the training step: a teacher without gradients, say."""
        spot = self.held.spot
        inside = any(frame is spot.frame and spot.first <= line <= self.held.line for frame, line in stack)
        return inside and not self._other_loaders()

    def _unit(self, stack: Stack) -> Unit | None:
        for frame, line in reversed(stack):  # a loop over a loader, as far out as it may be
            loop = _loop(frame, line)
            others = self._other_loaders() if loop is self.unit.spot.loop else []
            if loop is not None and (others or loop is not self.unit.spot.loop):
                unit = make_unit(Spot(frame, function_of(frame), loop, line))
                if unit.loaders:
                    is_new = bool(others) or any(self._is_new(loader) for loader in unit.loaders)
                    return replace(unit, loaders=others or unit.loaders) if is_new else None
        frame, line = stack[-1]
        loop, function = _loop(frame, line), function_of(frame)
        if id(frame) not in self.frames:
            return make_unit(Spot(frame, function, loop, line))
        if loop is not None and not loop.lineno <= self.held.spot.first <= (loop.end_lineno or 0):
            return make_unit(Spot(frame, function, loop, line))
        around = [
            node
            for node in own_nodes(function)
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
        ]
        around = [node for node in around if isinstance(node, ast.With) or not hasattr(node, "body")]
        return make_unit(Spot(frame, function, None, line), around[0]) if around else None


def _loop(frame: FrameType, line: int) -> Loop | None:
    loops = [node for node in own_nodes(function_of(frame)) if isinstance(node, ast.For | ast.While)]
    around = [loop for loop in loops if loop.body[0].lineno <= line <= (loop.body[-1].end_lineno or 0)]
    return max(around, key=lambda loop: loop.lineno, default=None)


def go_on(watch: ValidationWatch, reached: Path, limit_s: float) -> bool:
    """Forks: the copy returns True and lets the script go on until it validates; here, False at the copy's end.

    Args:
        watch: that the copy enters.
        reached: a file that `watch.reached` makes; from then on the copy has all the time that it needs.
        limit_s: seconds to get there.
    """
    process = os.fork()
    if process == 0:
        end_with_parent()
        Loading.longest = _BATCHES
        watch.__enter__()
        return True
    end = time.monotonic() + limit_s
    while os.waitpid(process, os.WNOHANG) == (0, 0):
        if time.monotonic() > end and not reached.exists():
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            break
        time.sleep(_POLL_S)
    return False
