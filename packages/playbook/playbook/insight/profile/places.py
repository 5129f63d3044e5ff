"""Which module and which line of the user's code an operation belongs to, in the forward and the backward pass."""

import linecache
import sys
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.profiler import record_function
from torch.utils._pytree import tree_leaves

from playbook.insight.short_training import train_copy
from playbook.project import is_user_file
from playbook.training.ending import source_line

KEY = "playbook"  # under which a node of the autograd graph keeps its place


class Place(NamedTuple):
    """Where an operation stands.

    Args:
        module: path of the innermost module, empty outside all modules.
        line: `file:line` of the innermost line of the user's code, empty if there is none.
    """

    module: str = ""
    line: str = ""


class ModuleStack:
    """The path of the module that is evaluated, by forward hooks.

    Args:
        model: whose modules are followed.
        ranges: whether each evaluation is named in a trace of torch.profiler.
    """

    def __init__(self, model: nn.Module, ranges: bool = False) -> None:
        self.model = model
        self.ranges = ranges
        self.paths: list[str] = [""]
        self._open: list[Any] = []
        self._hooks = ExitStack()

    def __enter__(self) -> "ModuleStack":
        for name, module in self.model.named_modules():
            if name and not isinstance(module, torch.jit.ScriptModule):
                self._hooks.callback(module.register_forward_pre_hook(self._enter(name)).remove)
                self._hooks.callback(module.register_forward_hook(self._leave, always_call=True).remove)
        return self

    def __exit__(self, *_: object) -> None:
        self._hooks.close()

    def _enter(self, name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            self.paths.append(name)
            if self.ranges:
                self._open.append(record_function(name))
                self._open[-1].__enter__()

        return hook

    def _leave(self, *_: Any) -> None:
        if len(self.paths) > 1:
            self.paths.pop()
        if self._open:
            self._open.pop().__exit__(None, None, None)


class Places(TorchFunctionMode):
    """Notes on each node of the autograd graph where it was made, so that its backward pass is found as well.

    Args:
        modules: followed meanwhile.
    """

    def __init__(self, modules: ModuleStack) -> None:
        super().__init__()
        self.modules = modules
        self.current = Place()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == "__get__":  # x.shape and the like
            return func(*args, **(kwargs or {}))
        former, self.current = self.current, Place(self.modules.paths[-1], line_of(sys._getframe(1)))
        try:
            outputs = func(*args, **(kwargs or {}))
        finally:
            place, self.current = self.current, former
        for output in tree_leaves(outputs):
            if isinstance(output, Tensor) and output.grad_fn is not None:
                _note(output.grad_fn, place)
        return outputs

    def place(self) -> tuple[Place, bool]:
        """Of the operation that runs now, and whether it belongs to the backward pass."""
        node: Any = torch._C._current_autograd_node()
        if node is not None:
            return node.metadata.get(KEY, Place()), True
        return self.current, False


def _note(node: Any, place: Place) -> None:
    """Gives the place to a node and to those before it that have none yet: of one call, there may be several."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node is None or KEY in node.metadata or node.name() == "torch::autograd::AccumulateGrad":
            continue
        node.metadata[KEY] = place
        waiting += [before for before, _ in node.next_functions]


def line_of(frame: FrameType | None) -> str:
    """`file:line` of the innermost frame of the user's code within the training; empty if there is none."""
    while frame is not None and frame.f_code is not train_copy.__code__:
        if is_user_file(frame.f_code.co_filename):
            return source_line(frame)
        frame = frame.f_back
    return ""


def source(line: str) -> str:
    """The text of a `file:line`."""
    file, _, number = line.rpartition(":")
    return linecache.getline(file, int(number)).strip() if file and number.isdigit() else ""
