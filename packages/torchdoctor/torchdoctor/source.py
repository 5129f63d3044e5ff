"""Locates the user's source: their files, frames, lines and syntax trees."""

import ast
import inspect
import linecache
import os
import site
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, TypeVar

from torch import nn

from torchdoctor.findings import Place

_OWN = os.path.dirname(os.path.abspath(__file__))
_TORCH = os.path.dirname(os.path.abspath(sys.modules["torch"].__file__ or "")) + os.sep
_DEPTH = 12  # of the user's frames that are kept of a stack
_LIBRARIES = (
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("purelib"),
    sysconfig.get_path("platlib"),
    *site.getsitepackages(),
    site.getusersitepackages(),
    os.path.dirname(os.__file__),
)
_told: tuple[str, ...] = ()  # folders that the caller calls libraries

Loop = ast.For | ast.While | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Call  # of map


def treat_as_libraries(folders: Iterable[str | os.PathLike[str]]) -> None:
    """From now on in this process, code in these folders is a library's; an editable install looks like the user's.

    Args:
        folders: of libraries outside of site-packages. They replace those of the call before.
    """
    global _told  # noqa: PLW0603  # one review at a time, whose copies of the process inherit it
    _told = tuple(os.path.abspath(folder) for folder in folders)
    is_user.cache_clear()


def treat_copies_as_libraries(original: Path, copy: Path) -> None:
    """From now on in this process, libraries in a folder or beside it are libraries in or beside its copy as well."""
    treat_as_libraries([*_told, *(copy / os.path.relpath(folder, original) for folder in _told)])


@cache
def is_user(file: str) -> bool:
    """Whether a file is neither Python's, nor a library's, nor part of the review."""
    if file.startswith("<"):
        return False
    path = os.path.abspath(file)
    if any(part in ("site-packages", "dist-packages") for part in path.split(os.sep)):
        return False
    return not any(path.startswith(folder + os.sep) for folder in (_OWN, *_told, *_LIBRARIES) if folder)


@cache
def is_torch(file: str) -> bool:
    """Whether a file belongs to torch itself."""
    return os.path.abspath(file).startswith(_TORCH)


def callers(frame: FrameType | None) -> tuple[tuple[Place, ...], bool]:
    """The user's lines from this frame outwards, and whether the innermost called torch itself.

    The call is the user's own if only torch stands between: libraries as Lightning may do as they like. The review's
    modes, which pass calls of torch on, do not count.
    """
    places: list[Place] = []
    direct = True
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):  # of the one that asks
        frame = frame.f_back
    while frame is not None and len(places) < _DEPTH:
        file = frame.f_code.co_filename
        is_mode = frame.f_code.co_name in ("__torch_function__", "__torch_dispatch__")
        if file.startswith(_OWN) and not is_mode:  # of the one that runs the program
            break
        if is_user(file):
            places.append(Place(file, frame.f_lineno))
        elif not places and not file.startswith(_OWN) and not is_torch(file) and not file.startswith("<"):
            direct = False
        frame = frame.f_back
    return tuple(places), direct and bool(places)


def raised_at(error: BaseException) -> Place | None:
    """The innermost line of the user's in a traceback, or in that of the exception it was raised from.

    Where a file of the user's is no Python, it is the line at which Python stopped to read it.
    """
    if isinstance(error, SyntaxError) and error.filename and is_user(error.filename):
        return Place(error.filename, error.lineno or 1)
    trace: TracebackType | None = error.__traceback__
    place = None
    while trace is not None:
        if is_user(trace.tb_frame.f_code.co_filename):
            place = Place(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    return raised_at(error.__cause__) if place is None and error.__cause__ is not None else place


def definition(thing: Any) -> Place | None:
    """Where a class or a function of the user's begins."""
    try:
        thing = inspect.unwrap(thing)
        file = inspect.getsourcefile(thing)
        return Place(file, inspect.getsourcelines(thing)[1]) if file and is_user(file) else None
    except (TypeError, OSError):
        return None


@cache
def tree(file: str) -> ast.Module:
    """A file's syntax tree, an empty one if it is no Python."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ast.Module([], [])


def is_code(text: str) -> bool:
    """Whether this could be Python."""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


_Node = TypeVar("_Node", bound=ast.stmt | ast.expr)


def around(place: Place, *kinds: type[_Node]) -> list[_Node]:
    """The nodes of these kinds that span a line, from the outside in."""
    nodes = [node for node in ast.walk(tree(place.file)) if isinstance(node, kinds)]
    return [node for node in nodes if node.lineno <= place.line <= (node.end_lineno or 0)]


def assigned_at(place: Place) -> set[str]:
    """What the statements that begin at a line assign: variables, attributes, entries."""
    assigned = [node for node in around(place, ast.Assign) if node.lineno == place.line]
    return {ast.unparse(target) for node in assigned for target in node.targets}


@cache
def function_at(place: Place) -> ast.FunctionDef | None:
    """The innermost function around a line."""
    return next(reversed(around(place, ast.FunctionDef)), None)


def parameters(place: Place) -> set[str]:
    """The names of the parameters of the innermost function around a line."""
    function = function_at(place)
    return {item.arg for item in ast.walk(function.args) if isinstance(item, ast.arg)} if function else set()


@cache
def loops_around(place: Place) -> list[Loop]:
    """Loops, comprehensions and calls of `map` whose body a line is in, within its function, from the outside in."""
    nodes = ast.walk(function_at(place) or tree(place.file))
    loops = [node for node in nodes if isinstance(node, Loop) and (not isinstance(node, ast.Call) or _is_map(node))]
    starts = [node.body[0].lineno if isinstance(node, ast.For | ast.While) else node.lineno for node in loops]
    return [n for n, start in zip(loops, starts, strict=True) if start <= place.line <= (n.end_lineno or 0)]


def loop_target(loop: Loop) -> str:
    """What follows `for` in a loop, or an equivalent of it."""
    if isinstance(loop, ast.Call):
        return f"_ in {ast.unparse(loop.func)}"
    if isinstance(loop, ast.While):
        return ast.unparse(loop.test)
    return ast.unparse(loop.target if isinstance(loop, ast.For) else loop.generators[0].target)


def _is_map(call: ast.Call) -> bool:
    return ast.unparse(call.func).rpartition(".")[2] in ("map", "starmap")


def is_in_loop(place: Place) -> bool:
    """Whether a line is inside a loop of its function."""
    loops = loops_around(place) if function_at(place) else []
    return any(isinstance(loop, ast.For | ast.While) for loop in loops)


def body(function: Callable[..., Any] | type | CodeType) -> tuple[str, ast.AST] | None:
    """The file and the syntax tree of a function or class of the user's."""
    place = definition(function)
    if place is None:
        return None
    for node in ast.walk(tree(place.file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            first = min([node.lineno, *[item.lineno for item in getattr(node, "decorator_list", [])]])
            if first == place.line:
                return place.file, node
    return None


def imported(besides: Collection[str] = ()) -> list[str]:
    """The user's files that have been imported.

    Args:
        besides: names of modules to leave out.
    """
    modules = [module for name, module in list(sys.modules.items()) if name not in besides]
    files = [getattr(module, "__file__", None) or "" for module in modules]
    return [file for file in files if file.endswith(".py") and is_user(file)]


def classes_of(thing: object) -> list[type]:
    """The user's classes among an object's own and its bases."""
    return [cls for cls in type(thing).__mro__ if definition(cls) is not None]


def files_of(*things: object) -> list[str]:
    """The files of the user's classes of things, and of all parts of modules."""
    parts = [part for thing in things for part in (thing.modules() if isinstance(thing, nn.Module) else [thing])]
    places = [definition(cls) for part in parts for cls in classes_of(part)]
    return sorted({place.file for place in places if place is not None})


def classes_in(model: nn.Module) -> list[type]:
    """The user's classes among those of a model and all its parts, each once."""
    return list(dict.fromkeys(cls for part in model.modules() for cls in classes_of(part)))


def without_gradients(places: tuple[Place, ...]) -> Place | None:
    """The innermost `with torch.no_grad():`, or function decorated with it, around these lines of a stack."""
    for place in places:
        for node in around(place, ast.With, ast.FunctionDef):
            marks = [item.context_expr for item in node.items] if isinstance(node, ast.With) else node.decorator_list
            if any(word in ast.unparse(mark) for mark in marks for word in ("no_grad", "inference_mode")):
                return Place(place.file, min(mark.lineno for mark in marks))
    return None


def calls(node: ast.AST, *names: str) -> Iterator[ast.Call]:
    """Calls whose last name is one of these: `optim.Adam(…)` and `Adam(…)` for Adam."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in names:
            yield call


def statements(*functions: Callable[..., Any] | type | None) -> Iterator[tuple[Place, ast.AST]]:
    """Everything with a line in functions or classes of the user's, one after another, from the outside in."""
    for function in functions:
        parsed = body(function) if function is not None else None
        for node in ast.walk(parsed[1]) if parsed is not None else ():
            if parsed is not None and hasattr(node, "lineno"):
                yield Place(parsed[0], node.lineno), node  # type: ignore[attr-defined]  # asked above


def in_methods(owner: object) -> Iterator[tuple[Place, ast.AST]]:
    """Everything with a line in the methods of an object's classes, but for __init__."""
    for cls in classes_of(owner):
        yield from statements(*(value for name, value in vars(cls).items() if callable(value) and name != "__init__"))


def first_call(functions: Iterable[Callable[..., Any] | type | None], *names: str) -> Place | None:
    """The first call whose last name is one of these, in functions or classes of the user's."""
    for file, node in filter(None, (body(function) for function in functions if function is not None)):
        for call in calls(node, *names):
            return Place(file, call.lineno)
    return None


def call_beside(classes: Iterable[type], *names: str) -> Place | None:
    """The first call whose last name is one of these, anywhere in the files of classes of the user's."""
    for file in dict.fromkeys(place.file for place in map(definition, classes) if place is not None):
        for call in calls(tree(file), *names):
            return Place(file, call.lineno)
    return None


def assignment(owner: object, name: str) -> Place | None:
    """Where an attribute of an object is assigned first in its class: `self.name = …`, innermost class first."""
    return next((place for place, _ in assigned(owner, name)), None)


def assigned(owner: object, name: str) -> list[tuple[Place, ast.stmt]]:
    """Statements that assign an attribute in the innermost class that does, in order, also `self.a, self.b = …`."""
    assignments = []
    for cls in classes_of(owner):
        if assignments:
            break
        file, node = body(cls) or ("", ast.Module([], []))
        for statement in ast.walk(node):
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            if isinstance(statement, ast.AnnAssign | ast.AugAssign):
                targets = [statement.target]
            flat = [part for target in targets for part in getattr(target, "elts", [target])]
            if isinstance(statement, ast.stmt) and any(ast.unparse(part) == f"self.{name}" for part in flat):
                assignments.append((Place(file, statement.lineno), statement))
    return sorted(assignments, key=lambda item: item[0].line)


def feeding(file: str, statement: ast.stmt) -> list[ast.stmt]:
    """The statement, and those before it in its function that define the names it uses, and theirs; nearest first."""
    function = function_at(Place(file, statement.lineno))
    steps = ast.walk(function) if function else ()
    before = [item for item in steps if isinstance(item, ast.Assign | ast.AugAssign)]
    nearest, wanted = [statement], _names(statement)
    for item in sorted(before, key=lambda item: -item.lineno):
        targets = item.targets if isinstance(item, ast.Assign) else [item.target]
        names = {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
        if item.lineno < statement.lineno and names & wanted:
            nearest.append(item)
            wanted |= _names(item)
    return nearest


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
