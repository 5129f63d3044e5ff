"""Turns a part of a script into a function of the variables in its frame; source lines are kept."""

import ast
import builtins
import copy
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

from torchdoctor.running.unchanged import CONTAINERS, refill
from torchdoctor.running.unregistered import is_plain
from torchdoctor.scripts.hold import Spot, begun_at, head, own_nodes
from torchdoctor.scripts.notes import Loading, rewound_iterations, stack

_FETCH_S = 3.0
_MANY = 10_000  # things in a container that is too large for its content to be put back after a run


class Leave(BaseException):
    """Raised to leave the script's code."""


@dataclass(eq=False)
class Unit:
    """A repeatable step of a script.

    Args:
        spot: where it is.
        loaders: that its loop goes through, in order; none if its batch is in variables.
        variables: of its function, or of the file; as they are at the hold.
        before: statements of a loop's body that fetch a batch.
        after: the statements to run.
        carried: variables that an earlier step computed from weights, as a recurrent state.
        turn: of the loop, as `enumerate` counts; None lets it go on after the first, which has its own branches.
        gradients: whether a validation leaves them on, as one that adapts a model or derives forces must.
        assigned: variables that the statements make themselves, whatever they are before.
    """

    spot: Spot
    loaders: list[DataLoader]
    variables: dict[str, Any]
    before: list[ast.stmt]
    after: list[ast.stmt]
    carried: frozenset[str] = frozenset()
    turn: int | None = None
    gradients: bool = False
    assigned: frozenset[str] = frozenset()
    _functions: dict[tuple[Any, ...], Callable[[dict[str, Any]], None]] = field(default_factory=dict)

    @property
    def globals(self) -> dict[str, Any]:
        """The global variables of the file."""
        return self.spot.frame.f_globals

    @property
    def reads_state(self) -> bool:
        """Whether the statements read one of the carried variables before they assign it anew."""
        kinds = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.Return
        nodes = [node for part in self.after for node in ast.walk(part) if isinstance(node, ast.stmt)]
        assigned: set[str] = set()
        for statement in sorted((n for n in nodes if isinstance(n, kinds)), key=lambda node: node.lineno):
            stored = set(names([statement], ast.Store))
            read = set(names([statement], ast.Load)) | (stored if isinstance(statement, ast.AugAssign) else set())
            if self.carried & (read - assigned):
                return True
            assigned |= stored
        return False

    def value(self, name: str) -> Any:
        """The value of a variable."""
        return self.variables.get(name, self.globals.get(name))

    def first_batch(self) -> Any:
        """The first input: a batch of the loaders, or the variables as they are."""
        parts = [next(iter(loader)) for loader in self.loaders]
        return parts[0] if len(parts) == 1 else parts or {}

    def run(self, batch: Any, index: int = 0) -> None:
        """Runs the statements on a batch.

        Args:
            batch: what the loaders give, or variables by name.
            index: of the batch.
        """
        if not self.loaders:
            self._execute(self.after, batch)
            return
        with self._looping(batch, index):
            self._execute(self.after, {})

    def fetched(self, names: list[str], number: int) -> list[dict[str, Any]]:
        """Fetches further batches: these variables after the loop's head and the statements before the step."""
        batches: list[dict[str, Any]] = []
        end = time.monotonic() + _FETCH_S
        if self.spot.loop is None:
            return batches

        def collect(**values: Any) -> None:
            batches.append({name: copy.deepcopy(detached(value)) for name, value in values.items()})
            if len(batches) == number or time.monotonic() > end:
                raise Leave

        turns = copy.copy(self.spot.loop)
        call = ast.parse(f"__collect__({', '.join(f'{name}={name}' for name in names)})").body
        turns.body, turns.orelse = [*self.before, *call], []
        with suppress(Leave):
            self._execute([turns], {"__collect__": collect})
        return batches

    def _execute(self, statements: list[ast.stmt], chosen: dict[str, Any]) -> None:
        known = self.variables | {name: _copied(self.variables[name]) for name in self.carried} | chosen
        own = [value for name, value in self.globals.items() if not name.startswith("__")]
        with _values_restored([*known.values(), *own], self.globals), rewound_iterations():
            declared = known if self._is_file else {name: chosen[name] for name in self._declared & chosen.keys()}
            self.globals.update(declared)
            key = statements is self.after, *known
            if key not in self._functions:
                self._functions[key] = self._compiled(statements, list(known))
            self._functions[key](known)

    @property
    def _is_file(self) -> bool:
        return isinstance(self.spot.function, ast.Module)

    @property
    def _declared(self) -> set[str]:
        """The global variables that the function assigns."""
        nodes = own_nodes(self.spot.function)
        return {name for node in nodes if isinstance(node, ast.Global) for name in node.names}

    def _compiled(self, statements: list[ast.stmt], known: list[str]) -> Callable[[dict[str, Any]], None]:
        """Compiles the statements to a function whose parameters are the variables."""
        own = self.spot.frame.f_code
        if self.spot.loop is not None:  # so that `continue` and `break` end the run
            once: Any = ast.parse("for __once__ in (0,): pass").body[0]
            once.body, statements = statements, [once]
        if self._is_file:
            code = compile(ast.Module(statements, []), own.co_filename, "exec")
            return lambda _: exec(code, self.globals)  # noqa: S102  # the script's own statements
        statements = _mangled(statements, own.co_qualname)
        declared, free = self._declared, own.co_freevars  # among these is the __class__ that super() reads
        order = dict.fromkeys([*own.co_varnames, *known])
        parameters = [name for name in order if name.isidentifier() and name not in {*declared, *free}]
        inner = f"def inner({', '.join(parameters)}): pass"
        outer: Any = ast.parse(f"def outer({', '.join(free)}):\n {inner}\n return inner")
        outer.body[0].body[0].body = [*([ast.Global(sorted(declared))] if declared else []), *statements]
        scope: dict[str, Any] = {}
        exec(compile(ast.fix_missing_locations(outer), own.co_filename, "exec"), self.globals, scope)  # noqa: S102
        return lambda values: scope["outer"](*map(values.get, free))(*map(values.get, parameters))

    @contextmanager
    def _looping(self, batch: Any, index: int) -> Iterator[None]:
        """A context in which the loop's loaders yield this batch, and `enumerate` starts at its index."""
        parts = [batch] if len(self.loaders) == 1 else batch
        parts_by_loader = {id(loader): part for loader, part in zip(self.loaders, parts, strict=True)}
        file, lines = self.spot.frame.f_code.co_filename, {line for part in self.after for line in head(part)}
        count, turn = builtins.enumerate, index + 1 if self.turn is None else self.turn

        def chosen(loader: DataLoader) -> Iterator[Any] | None:
            is_anew = len(parts) == 1 and _is_begun_at(file, lines)  # `for batch in DataLoader(…)`
            part = parts_by_loader.get(id(loader), parts[0] if is_anew else None)
            return None if part is None else iter([part])

        def counted(things: Any, start: int = 0) -> Any:
            caller = sys._getframe(1)
            is_own = caller.f_code.co_filename == file and caller.f_lineno in lines
            return count(things, start + turn if is_own else start)

        with mock.patch.object(Loading, "chosen", chosen), mock.patch.object(builtins, "enumerate", counted):
            yield


def _is_begun_at(file: str, lines: set[int]) -> bool:
    """Whether one of these lines starts iterating over a loader."""
    called = stack(sys._getframe(1))[-1:]
    return any(frame.f_code.co_filename == file and line in lines for frame, line in called)


def _mangled(statements: list[ast.stmt], function: str) -> list[ast.stmt]:
    """The statements of a method with its private names (`__name`) mangled."""
    owners = re.findall(r"(\w+)\.(?!<)", function)  # but for functions, which "<locals>" follows
    copies = copy.deepcopy(statements) if owners else statements
    for node in (node for statement in copies for node in ast.walk(statement) if owners):
        for name in ("id", "attr"):
            value = getattr(node, name, "")
            if value.startswith("__") and not value.endswith("__"):
                setattr(node, name, f"_{owners[-1].lstrip('_')}{value}")
    return copies


def make_unit(spot: Spot, only: ast.stmt | None = None) -> Unit:
    """Builds the unit at a spot: a whole loop over loaders, or the statements of the step.

    Args:
        spot: of the step.
        only: the statement to run, in place of those; with the loaders that it goes through, as in a comprehension.
    """
    own = {name: value for name, value in spot.frame.f_locals.items() if not _holds_itself(value)}
    if spot.frame.f_locals is spot.frame.f_globals:
        own = {name: value for name, value in own.items() if not name.startswith("__")}
    variables = {name: detached(value) for name, value in own.items()}
    carried = frozenset(name for name, value in own.items() if variables[name] is not value)
    loaders, going_through = _loaders(spot)
    if loaders:
        return Unit(spot, loaders, variables, [], going_through, carried)
    if only is not None:
        return Unit(spot, begun_at(only, spot.frame, itself=True), variables, [], [only], carried)
    if loaders := _begun_in_body(spot):
        return Unit(spot, loaders, variables, [], _body(spot), carried)
    before, after = _split(_body(spot), spot.first)
    states = carried.intersection(names(after, ast.Load))
    scope, read = variables | spot.frame.f_globals, set(names(after, ast.Load))
    started = [part for part in before if _begins(part, states, scope) or _zeroes(part, read)]
    unit = Unit(spot, [], variables, before, [*started, *after], carried)
    target = [spot.loop.target] if isinstance(spot.loop, ast.For) else []
    assigned = set(names([*target, *before], ast.Store))
    overwritten = assigned.intersection(names(after, ast.Store))
    if overwritten and spot.loop is None:  # since: the function begins again
        return Unit(spot, [], variables, [], [*before, *after], carried, assigned=frozenset(assigned))
    if overwritten:  # what belongs together is fetched anew
        beside = [name for name in assigned.intersection(names(after, ast.Load)) if _is_value(variables.get(name))]
        unit.variables.update(*unit.fetched(sorted({*overwritten, *beside}), 1))
    return unit


def _holds_itself(value: Any) -> bool:
    """Whether a dict or list contains itself, as the result of `locals()` does once it is assigned."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(part is value for part in parts)


def _zeroes(statement: ast.stmt, read: set[str]) -> bool:
    """Whether a statement zeroes gradients and assigns nothing that the step reads."""
    is_zeroing = any(isinstance(node, ast.Attribute) and node.attr == "zero_grad" for node in ast.walk(statement))
    return is_zeroing and read.isdisjoint(names([statement], ast.Store))


def _is_value(value: Any) -> bool:
    """Whether a value consists of tensors, arrays, numbers and texts only, and can be copied."""
    kinds = Tensor | np.ndarray | str | int | float | None
    return all(isinstance(leaf, kinds) for leaf in pytree.tree_leaves(value))


def _begins(statement: ast.stmt, states: frozenset[str], scope: dict[str, Any]) -> bool:
    """Whether a statement initialises states: variables, attributes, or by a method of a network."""
    if isinstance(statement, ast.Assign):
        targets = [node for target in statement.targets for node in ast.walk(target)]
        is_state = bool(states.intersection(names([statement], ast.Store)))
        return is_state or any(isinstance(node, ast.Attribute) for node in targets)
    call = statement.value if isinstance(statement, ast.Expr) else None
    owner = call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
    return isinstance(owner, ast.Name) and isinstance(scope.get(owner.id), nn.Module)


def names(statements: Sequence[ast.AST], context: type[ast.expr_context]) -> list[str]:
    """Names that statements read (ast.Load) or assign (ast.Store), each once."""
    nodes = [node for statement in statements for node in ast.walk(statement)]
    return list(dict.fromkeys(n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, context)))


def _body(spot: Spot) -> list[ast.stmt]:
    if spot.loop is not None:
        return spot.loop.body
    function: Any = spot.function
    return [ast.copy_location(ast.Expr(function.body), function)] if isinstance(function, ast.Lambda) else function.body


def _loaders(spot: Spot) -> tuple[list[DataLoader], list[ast.stmt]]:
    """The loaders that a loop iterates over, and the statements from `batches = iter(loader)` on."""
    loop = spot.loop
    if not isinstance(loop, ast.For):
        return [], []
    read = set(names([loop.iter], ast.Load))
    assigned = [node for node in own_nodes(spot.function) if isinstance(node, ast.Assign)]
    earlier = [node for node in assigned if node.lineno < loop.lineno and read.intersection(names([node], ast.Store))]
    begun = {statement: begun_at(statement, spot.frame) for statement in (*earlier, loop)}
    loaders = {id(loader): loader for some in begun.values() for loader in some}
    return list(loaders.values()), [statement for statement, some in begun.items() if some or statement is loop]


def _begun_in_body(spot: Spot) -> list[DataLoader]:
    """The loaders that each turn of a loop restarts, as `next(iter(loader))` does."""
    if spot.loop is None:
        return []
    simple = [statement for statement in spot.loop.body if isinstance(statement, ast.Assign | ast.Expr)]
    begun = {id(loader): loader for statement in simple for loader in begun_at(statement, spot.frame)}
    return list(begun.values())


def _split(statements: list[ast.stmt], line: int) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Splits statements at a line; a `with` or `try` around it is cut in two."""
    number = next((number for number, part in enumerate(statements) if line <= (part.end_lineno or 0)), None)
    if number is None:
        return [], statements
    before, around, after = statements[:number], statements[number], statements[number + 1 :]
    if isinstance(around, ast.With | ast.Try | ast.If) and line <= (around.body[-1].end_lineno or 0):
        head, tail = _split(around.body, line)
        if head:
            first, rest = copy.copy(around), copy.copy(around)
            first.body, rest.body = head, tail
            return [*before, first], [rest, *after]
    return before, [around, *after]


def detached(value: Any) -> Any:
    """A value without the graph that an earlier step left."""
    if type(value) not in (Tensor, list, tuple, dict):
        return value
    has_graph = any(isinstance(leaf, Tensor) and not leaf.is_leaf for leaf in pytree.tree_leaves(value))
    return pytree.tree_map_only(Tensor, Tensor.detach, value) if has_graph else value


def _copied(value: Any) -> Any:
    return pytree.tree_map_only(Tensor, Tensor.clone, value)


@contextmanager
def _values_restored(values: list[Any], scope: dict[str, Any]) -> Iterator[None]:
    """A context that restores global variables, small containers and the script's own objects."""
    attributes = [vars(value) for value in values if is_plain(value)]
    inner = [part for each in attributes for part in each.values()]
    containers = [value for value in (*values, *inner) if type(value) in CONTAINERS and len(value) < _MANY]
    contents = [(value, value.copy()) for value in (*attributes, *containers, scope)]
    try:
        yield
    finally:
        for value, content in contents:
            refill(value, content)
