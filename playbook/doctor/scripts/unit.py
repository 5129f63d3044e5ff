"""A part of a script as a function: its statements with their own lines, run on the variables of its frame."""

import ast
import builtins
import copy
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from types import FrameType, FunctionType
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

from playbook.doctor.scripts import notes
from playbook.doctor.scripts.hold import Spot, own_nodes
from playbook.doctor.scripts.notes import Loading

_HELD = (list, dict, set, deque)  # whose content is put back after a run
_MANY = 10_000  # things in one that is too large for that


class Leave(BaseException):
    """Leaves the script's code."""


@dataclass(eq=False)
class Unit:
    """A step of a script, that can be run again and again.

    Args:
        spot: where it is.
        loaders: that its loop goes through, in order; none if its batch is in variables.
        variables: of its function, or of the file; as they are at the hold.
        before: statements of a loop's body that fetch a batch.
        after: the statements to run.
        carried: variables that an earlier step computed from weights, as a recurrent state.
        turn: of the loop, as `enumerate` counts; None lets it go on after the first, which has its own branches.
        gradients: whether a validation leaves them on, as one that adapts a model or derives forces must.
    """

    spot: Spot
    loaders: list[DataLoader]
    variables: dict[str, Any]
    before: list[ast.stmt]
    after: list[ast.stmt]
    carried: frozenset[str] = frozenset()
    turn: int | None = None
    gradients: bool = False
    _functions: dict[tuple[Any, ...], Callable[[dict[str, Any]], None]] = field(default_factory=dict)

    @property
    def globals(self) -> dict[str, Any]:
        """Of the file."""
        return self.spot.frame.f_globals

    def value(self, name: str) -> Any:
        """Of a variable."""
        return self.variables.get(name, self.globals.get(name))

    def run(self, batch: Any, index: int = 0) -> None:
        """Runs the statements on a batch.

        Args:
            batch: what the loaders give, or variables by name.
            index: of the batch.
        """
        chosen = {} if self.loaders else batch
        with self._looping(batch, index) if self.loaders else nullcontext():
            self._execute(self.after, chosen)

    def fetched(self, names: list[str], number: int, limit_s: float) -> list[dict[str, Any]]:
        """Further batches: the variables of these names, after the loop's head and the statements before the step."""
        found: list[dict[str, Any]] = []
        loop, end = self.spot.loop, time.monotonic() + limit_s
        if loop is None:
            return found

        def collect(values: dict[str, Any]) -> None:
            found.append({name: copy.deepcopy(detached(value)) for name, value in values.items()})
            if len(found) == number or time.monotonic() > end:
                raise Leave

        pairs = ast.Dict([ast.Constant(name) for name in names], [ast.Name(name, ast.Load()) for name in names])
        call = ast.Expr(ast.Call(ast.Name("__collect__", ast.Load()), [pairs], []))
        endless: ast.expr = ast.Constant(True)
        turn: ast.stmt = ast.While(endless, [*self.before, call], [])
        if isinstance(loop, ast.For):
            turn = ast.For(loop.target, loop.iter, [*self.before, call], [])
        with suppress(Leave):
            self._execute([turn], {"__collect__": collect})
        return found

    def _execute(self, statements: list[ast.stmt], chosen: dict[str, Any]) -> None:
        known = self.variables | {name: _copied(self.variables[name]) for name in self.carried} | chosen
        own = [value for name, value in self.globals.items() if not name.startswith("__")]
        with _put_back([*known.values(), *own], self.globals):
            if self._is_file:
                self.globals.update(known)
            else:
                self.globals.update({name: chosen[name] for name in self._declared & chosen.keys()})
            key = statements is self.after, *known
            if key not in self._functions:
                self._functions[key] = self._compiled(statements, known)
            self._functions[key](known)

    @property
    def _is_file(self) -> bool:
        return isinstance(self.spot.function, ast.Module)

    @property
    def _declared(self) -> set[str]:
        nodes = own_nodes(self.spot.function)
        return {name for node in nodes if isinstance(node, ast.Global) for name in node.names}

    def _compiled(self, statements: list[ast.stmt], known: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
        """The statements as a function of the variables."""
        file = self.spot.frame.f_code.co_filename
        once: list[ast.stmt] = statements
        if self.spot.loop is not None:  # so that `continue` and `break` end the run
            turns = ast.Tuple([ast.Constant(0)], ast.Load())
            once = [ast.For(ast.Name("__once__", ast.Store()), turns, statements, [])]
        if self._is_file:
            code = compile(ast.fix_missing_locations(ast.Module(once, [])), file, "exec")
            return lambda _: exec(code, self.globals)  # noqa: S102  # the script's own statements
        order = dict.fromkeys([*self.spot.frame.f_code.co_varnames, *known])
        names = [name for name in order if name.isidentifier() and name not in {"__class__", *self._declared}]
        body: list[ast.stmt] = [ast.Global(sorted(self._declared))] if self._declared else []
        body += [_Local().visit(copy.deepcopy(statement)) for statement in once]
        inner = _function(self.spot.frame.f_code.co_name.strip("<>"), names, body)
        outer = _function("__unit__", ["__class__"], [inner, ast.Return(ast.Name(inner.name, ast.Load()))])
        scope: dict[str, Any] = {}
        exec(compile(ast.fix_missing_locations(ast.Module([outer], [])), file, "exec"), scope)  # noqa: S102
        made = FunctionType(scope["__unit__"].__code__, self.globals)(known.get("__class__"))  # which super() reads
        return lambda values: made(*[values.get(name) for name in names])

    @contextmanager
    def _looping(self, batch: Any, index: int) -> Iterator[None]:
        """The loop's loaders give one batch, and its `enumerate` begins later."""
        own, count = Loading.chosen, builtins.enumerate
        each = [batch] if len(self.loaders) == 1 else list(batch)
        given = {id(loader): part for loader, part in zip(self.loaders, each, strict=True)}
        head = {line for statement in self.after for line in _head(statement)}
        file, name = self.spot.frame.f_code.co_filename, self.spot.frame.f_code.co_name

        def counted(things: Any, start: int = 0) -> Any:
            frame = sys._getframe(1)
            code = frame.f_code
            here = code.co_filename == file and code.co_name == name and frame.f_lineno in head
            turn = index + 1 if self.turn is None else self.turn
            return count(things, start + turn if here else start)

        Loading.chosen = lambda loader: iter([given[id(loader)]]) if id(loader) in given else None
        builtins.enumerate = counted
        try:
            yield
        finally:
            Loading.chosen, builtins.enumerate = own, count


def _function(name: str, parameters: list[str], body: list[ast.stmt]) -> ast.FunctionDef:
    arguments = ast.arguments([], [ast.arg(parameter) for parameter in parameters], None, [], [], None, [])
    return ast.FunctionDef(name, arguments, body, [], **({"type_params": []} if sys.version_info >= (3, 12) else {}))


class _Local(ast.NodeTransformer):
    """Drops `nonlocal` of the function itself: its variables are parameters here."""

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.stmt:
        return ast.Pass()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        return node


def make_unit(spot: Spot, only: ast.stmt | None = None) -> Unit:
    """The unit at a spot: a loop over loaders as a whole, or the statements from the first that belongs to the step.

    Args:
        spot: of the step.
        only: the statement to run, in place of those.
    """
    own = dict(spot.frame.f_locals)
    if spot.frame.f_locals is spot.frame.f_globals:
        own = {name: value for name, value in own.items() if not name.startswith("__")}
    variables = {name: detached(value) for name, value in own.items()}
    carried = frozenset(name for name, value in own.items() if variables[name] is not value)
    loaders, going_through = _loaders(spot)
    if loaders:
        return Unit(spot, loaders, variables, [], going_through, carried)
    if only is not None:
        return Unit(spot, [], variables, [], [only], carried)
    statements = spot.loop.body if spot.loop is not None else _body(spot.function)
    before, after = _split(statements, spot.first)
    states = carried & _names(after, ast.Load)
    started = [part for part in before if isinstance(part, ast.Assign) and _names([part], ast.Store) & states]
    return Unit(spot, [], variables, before, [*started, *after], carried)


def _names(statements: list[ast.stmt], context: type[ast.expr_context]) -> set[str]:
    nodes = [node for statement in statements for node in ast.walk(statement)]
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, context)}


def _body(function: ast.AST) -> list[ast.stmt]:
    if isinstance(function, ast.Lambda):
        return [ast.Expr(function.body)]
    return function.body  # type: ignore[attr-defined]


def _loaders(spot: Spot) -> tuple[list[DataLoader], list[ast.stmt]]:
    """The loaders that a loop goes through, and the statements that do so: the loop, after `batches = iter(loader)`."""
    loop = spot.loop
    if not isinstance(loop, ast.For):
        return [], []
    read = {part.id for part in (loop.iter, *getattr(loop.iter, "args", [])) if isinstance(part, ast.Name)}
    assigned = [
        node for node in own_nodes(spot.function) if isinstance(node, ast.Assign) and _names([node], ast.Store) & read
    ]
    earlier = sorted((node for node in assigned if node.lineno < loop.lineno), key=lambda node: node.lineno)
    begun = {statement: begun_at(statement, spot.frame) for statement in (*earlier, loop)}
    loaders = {id(loader): loader for some in begun.values() for loader in some}
    return list(loaders.values()), [statement for statement, some in begun.items() if some or statement is loop]


def begun_at(statement: ast.stmt, frame: FrameType) -> list[DataLoader]:
    """The loaders that a statement of a frame has begun to go through, the last one last."""
    lines = _head(statement)
    return [loader for loader, stack in notes.iterations if any(f is frame and line in lines for f, line in stack)]


def _head(statement: ast.stmt) -> range:
    """The lines where a statement begins a loader: the whole of it, or a loop's head."""
    part = statement.iter if isinstance(statement, ast.For) else statement
    return range(part.lineno, (part.end_lineno or 0) + 1)


def _split(statements: list[ast.stmt], line: int) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """The statements before the one with a line, and the others; a `with` or `try` around it is cut in two."""
    for number, statement in enumerate(statements):
        if line > (statement.end_lineno or 0):
            continue
        if isinstance(statement, ast.With | ast.Try | ast.If) and line <= (statement.body[-1].end_lineno or 0):
            head, tail = _split(statement.body, line)
            if head:
                first, rest = copy.copy(statement), copy.copy(statement)
                first.body, rest.body = head, tail
                return [*statements[:number], first], [rest, *statements[number + 1 :]]
        return statements[:number], statements[number:]
    return [], statements


def detached(value: Any) -> Any:
    """A value without the graph that an earlier step left."""
    if type(value) not in (Tensor, list, tuple, dict):
        return value
    with_graph = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor) and not leaf.is_leaf]
    return pytree.tree_map_only(Tensor, lambda leaf: leaf.detach(), value) if with_graph else value


def _copied(value: Any) -> Any:
    return pytree.tree_map_only(Tensor, Tensor.clone, value)


@contextmanager
def _put_back(values: list[Any], scope: dict[str, Any]) -> Iterator[None]:
    """Global variables, and what small containers and the script's own objects hold, as they were."""
    attributes = [vars(value) for value in values if _is_plain(value)]
    inner = [part for each in attributes for part in each.values()]
    held = [*attributes, *(value for value in (*values, *inner) if type(value) in _HELD and len(value) < _MANY), scope]
    contents = [(value, value.copy()) for value in held]
    try:
        yield
    finally:
        for value, content in contents:
            if isinstance(value, dict):
                for name in value.keys() - content.keys():
                    del value[name]
                value.update(content)
            else:
                value.clear()
                (value.update if isinstance(value, set) else value.extend)(content)


def _is_plain(value: Any) -> bool:
    plain = not isinstance(value, nn.Module | Optimizer | type | FunctionType) and hasattr(value, "__dict__")
    return plain and type(value).__module__ == "__main__"
