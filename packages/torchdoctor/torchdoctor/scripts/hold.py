"""Stops a script at its first `backward` and finds the frame and loop of its training step."""

import ast
import builtins
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

from torchdoctor import source
from torchdoctor.running.graph import leaves, maker, nodes
from torchdoctor.scripts import notes
from torchdoctor.scripts.notes import Backward, Stack

Loop = ast.For | ast.While
_INNER = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


@dataclass
class Spot:
    """The location of a script's step.

    Args:
        frame: of the function that holds all of it.
        loop: the innermost loop around it, if any.
        first: line of the first statement that belongs to it, as far as it is known.
    """

    frame: FrameType
    loop: Loop | None
    first: int

    @cached_property
    def function(self) -> ast.AST:
        """The source of the frame's function, or the whole file's."""
        return function_of(self.frame)


@dataclass
class HeldScript:
    """A script at its first `backward`.

    Args:
        spot: of the step.
        leaves: the parameters that the loss depends on.
        line: of the step's frame, where it leads to `backward`.
    """

    spot: Spot
    leaves: list[Tensor]
    line: int


def run(script: Path, arguments: list[str], look: Callable[[HeldScript], None]) -> None:
    """Runs a script as `python script arguments` does, and calls `look` at its first backward.

    Args:
        script: the file, in the copy of its folder.
        arguments: of the script.
        look: gets the held script; the script goes on when it returns.

    Raises:
        BaseException: whatever the script raises, SystemExit among it.
    """
    mode = _GraphNotes()

    def hold(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        Backward.act = Backward.original
        loss = pytree.tree_leaves(tensors)[0]
        if loss.requires_grad:  # if not, torch says what is wrong
            mode.__exit__(None, None, None)
            graph, stack = nodes(loss.grad_fn), notes.stack(sys._getframe(1))
            spot = find_spot([mode.stacks[node] for node in graph if node in mode.stacks], stack)
            mode.stacks.clear()
            look(HeldScript(spot, leaves(graph), dict(stack)[spot.frame]))
        return Backward.act(tensors, *args, **kwargs)

    Backward.act = hold
    mode.__enter__()
    execute(script, arguments)


def execute(script: Path, arguments: list[str]) -> None:
    """Runs a file as __main__ in this process."""
    sys.argv = [script.name, *arguments]
    sys.path[0] = str(script.parent)
    own = {path.stem for path in script.parent.iterdir()}
    sys.path[1:] = [entry for entry in sys.path[1:] if not _hides(Path(entry), own)]
    for name in [name for name in sys.modules if name.partition(".")[0] in own]:  # as another `src`
        if source.is_user(getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]
    main = ModuleType("__main__")  # it stays when the script has ended, unlike that of runpy
    vars(main).update({"__file__": str(script), "__builtins__": builtins, "__cached__": None})
    sys.modules["__main__"] = main
    exec(compile(script.read_bytes(), str(script), "exec"), vars(main))  # noqa: S102  # it is what the user asks for


def _hides(entry: Path, names: set[str]) -> bool:
    """Whether a path entry holds packages that shadow the user's folders without `__init__.py`."""
    is_library = not source.is_user(str(entry / "__init__.py"))
    return not is_library and any((entry / name / "__init__.py").exists() for name in names)


class _GraphNotes(TorchFunctionMode):
    """Records the user's frames and lines for every call that adds to the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.stacks: dict[Any, Stack] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if torch.is_grad_enabled():
            outputs = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, Tensor) and leaf.requires_grad]
            new = {node for node in map(maker, outputs) if node is not None} - self.stacks.keys()
            if new:
                self.stacks |= dict.fromkeys(new, notes.stack(sys._getframe(1)))
        return out


def find_spot(stacks: Iterable[Stack], now: Stack) -> Spot:
    """The deepest frame that all stacks share, and the innermost loop in it around all their lines.

    A stack that shares none has returned since, as the maker of a state that is carried. One that shares a frame, but
    not its outermost loop, is of what was made before: a graph that a model begins with.
    """
    common = [frame for frame, _ in now]
    lines = {frame: [line] for frame, line in now}
    outermost = {frame: loops_around(frame, line)[:1] for frame, line in now}
    for stack in stacks:
        shared = [frame for frame in common if frame in dict(stack)]
        if not shared or not all(_holds(loop, dict(stack)[shared[-1]]) for loop in outermost[shared[-1]]):
            continue
        common = shared
        for frame, line in stack:
            lines.setdefault(frame, []).append(line)
    frame = common[-1]
    loop = loop_around(frame, *lines[frame])
    for caller, line in reversed(now[: common.index(frame)] if loop is None else []):
        outer = loop_around(caller, line)
        if outer is not None and begun_at(outer, caller):  # it calls a function that trains on one batch
            return Spot(caller, outer, line)
        if outer is not None:
            break
    return Spot(frame, loop, min(lines[frame]))


def loop_around(frame: FrameType, *lines: int) -> Loop | None:
    """The innermost loop around these lines of a frame's function."""
    return next(reversed(loops_around(frame, *lines)), None)


def loops_around(frame: FrameType, *lines: int) -> list[Loop]:
    """The loops around these lines of a frame's function, outermost first."""
    loops = [node for node in own_nodes(function_of(frame)) if isinstance(node, Loop)]
    around = [loop for loop in loops if all(_holds(loop, line) for line in lines)]
    return sorted(around, key=lambda loop: loop.lineno)


def _holds(loop: Loop, line: int) -> bool:
    return loop.body[0].lineno <= line <= (loop.body[-1].end_lineno or 0)


def begun_at(statement: ast.stmt, frame: FrameType, itself: bool = False) -> list[DataLoader]:
    """The loaders that a statement has started iterating over, in order.

    Args:
        statement: of the frame's function.
        frame: that runs it.
        itself: whether to leave out what a function begins that the statement calls.
    """
    lines, first = head(statement), -1 if itself else 0
    begun = ((loader, stack[first:]) for loader, stack in notes.iterations)
    return [loader for loader, stack in begun if any(f is frame and line in lines for f, line in stack)]


def head(statement: ast.stmt) -> range:
    """The lines where a statement starts iterating: all of it, or the head of a loop."""
    end = statement.iter if isinstance(statement, ast.For) else statement
    return range(statement.lineno, (end.end_lineno or 0) + 1)


def function_of(frame: FrameType) -> ast.AST:
    """The syntax tree of a frame's function, or of the whole file."""
    _, function = source.body(frame.f_code) or ("", source.tree(frame.f_code.co_filename))
    return function


def value_of(scope: Mapping[str, Any], target: ast.expr) -> Any:
    """The value of a variable or attribute in a scope; None if it does not exist."""
    name, *attributes = ast.unparse(target).split(".")
    return reduce(lambda owner, attribute: getattr(owner, attribute, None), attributes, scope.get(name))


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without nested functions and classes, outermost first."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, _INNER):
            yield from own_nodes(node)
