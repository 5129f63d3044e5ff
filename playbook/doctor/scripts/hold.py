"""Runs a script until its first `backward`, and finds the frame and the loop of its training step there."""

import ast
import builtins
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from playbook.doctor import source
from playbook.doctor.graph import leaves, nodes
from playbook.doctor.scripts import notes
from playbook.doctor.scripts.notes import Backward, Stack

Function = ast.FunctionDef | ast.Module | ast.Lambda
Loop = ast.For | ast.While


@dataclass
class Spot:
    """Where a step of a script is.

    Args:
        frame: of the function that holds all of it.
        function: the function's source, or the whole file's.
        loop: the innermost loop around it, if any.
        first: line of the first statement that belongs to it, as far as it is known.
    """

    frame: FrameType
    function: Function
    loop: Loop | None
    first: int


@dataclass
class Held:
    """A script at its first `backward`.

    Args:
        spot: of the step.
        leaves: the parameters that the loss depends on.
        line: of the step's frame, where it leads to `backward`.
    """

    spot: Spot
    leaves: list[Tensor]
    line: int


class GraphNotes(TorchFunctionMode):
    """Notes the user's frames and lines of every call that adds to a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.stacks: dict[Any, Stack] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if torch.is_grad_enabled():
            made = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, Tensor) and leaf.requires_grad]
            nodes = [node for node in map(_node, made) if node is not None and node not in self.stacks]
            if nodes:
                self.stacks |= dict.fromkeys(nodes, notes.stack(sys._getframe(1)))
        return out


def _node(tensor: Tensor) -> Any:
    try:
        return tensor.grad_fn
    except RuntimeError:  # a view that was made without gradients, and changed since
        return None


def run(script: Path, arguments: list[str], look: Callable[[Held], Any]) -> None:
    """Runs a script as `python script arguments` does, and shows it at its first backward.

    Args:
        script: the file, in the copy of its folder.
        arguments: of the script.
        look: gets the held script; what it does afterwards is the phase's own matter.

    Raises:
        BaseException: whatever the script raises, SystemExit among it.
    """
    mode = GraphNotes()

    def hold(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        Backward.act = Backward.original
        loss = pytree.tree_leaves(tensors)[0]
        if not loss.requires_grad:  # raises what the script has earned
            return Backward.original(tensors, *args, **kwargs)
        mode.__exit__(None, None, None)
        found = nodes(loss.grad_fn)
        now = notes.stack(sys._getframe(1))
        spot = find_spot([mode.stacks[node] for node in found if node in mode.stacks], now)
        mode.stacks.clear()
        look(Held(spot, leaves(found), dict(now)[spot.frame]))
        return Backward.act(tensors, *args, **kwargs)

    Backward.act = hold
    mode.__enter__()
    execute(script, arguments)


def execute(script: Path, arguments: list[str]) -> None:
    """Runs a file as __main__ in this process."""
    sys.argv = [script.name, *arguments]
    sys.path[0] = str(script.parent)
    main = ModuleType("__main__")
    vars(main).update({"__file__": str(script), "__builtins__": builtins, "__cached__": None})
    sys.modules["__main__"] = main
    exec(compile(script.read_bytes(), str(script), "exec"), vars(main))  # noqa: S102  # it is what the user asks for


def find_spot(stacks: Iterable[Stack], now: Stack) -> Spot:
    """The deepest frame that all stacks share, and the innermost loop in it around all their lines."""
    common = [frame for frame, _ in now]
    lines: dict[FrameType, list[int]] = {frame: [line] for frame, line in now}
    for known in stacks:
        frames = {frame for frame, _ in known}
        if frames.isdisjoint(common):  # made by what has returned since, as a state that is carried
            continue
        common = [frame for frame in common if frame in frames]
        for frame, line in known:
            if frame in lines:
                lines[frame].append(line)
    frame = common[-1]
    function = function_of(frame)
    loops = [node for node in own_nodes(function) if isinstance(node, ast.For | ast.While)]
    around = [loop for loop in loops if all(_holds(loop, line) for line in lines[frame])]
    loop = max(around, key=lambda node: node.lineno, default=None)
    return Spot(frame, function, loop, min(lines[frame]))


def _holds(loop: Loop, line: int) -> bool:
    return loop.body[0].lineno <= line <= (loop.body[-1].end_lineno or 0)


def function_of(frame: FrameType) -> Function:
    """The source of the function that a frame runs."""
    code, tree = frame.f_code, source.tree(frame.f_code.co_filename)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *[item.lineno for item in node.decorator_list]])
            if first == code.co_firstlineno:
                return node
        if isinstance(node, ast.Lambda) and code.co_name == "<lambda>" and node.lineno == code.co_firstlineno:
            return node
    return tree


def own_nodes(function: ast.AST) -> Iterable[ast.AST]:
    """Nodes of a function without those of functions and classes inside it."""
    inner = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
    todo = list(ast.iter_child_nodes(function))
    while todo:
        node = todo.pop(0)
        yield node
        if not isinstance(node, inner):
            todo += ast.iter_child_nodes(node)


def log_to(file: Path) -> None:
    """Sends what the script prints to a file."""
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", buffering=1, closefd=False) for stream in (1, 2))
