"""Loading of files that can execute code."""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import replace

from torchdoctor import source
from torchdoctor.code import name_of
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.subject import Subject

UNSAFE_LOAD = Defect(
    "unsafe-load",
    "critical",
    "Whoever wrote the file can run any code when it is loaded.",
    section="Code quality",
    shown_by=Evidence("source", "the calls that load files were read"),
)

_CHECKS = ("check_integrity", "_check_integrity", "check_md5", "md5", "sha256")
_READING = ("open", "read", "read_bytes", "recv", "get", "urlopen")
_FIX = "torch.load(path, weights_only=True)  # saved by torch.save; np.load for arrays, json for the rest"
_TENSORS = "  # saved as tensors alone"
_DEPTH = 8  # names from a path to its constants
_OUTSIDE = ("argv", "environ")
_PATHS = ("open", "GzipFile", "BZ2File", "join", "joinpath", "Path", "str", "abspath", "dirname", "realpath", "format")
_WRITES = {"'wb'", "'w'", "'ab'", "'xb'"}
_BUILTIN = {"__file__", "open", "str"}
_UNPICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib"}


def unsafe_load(subject: Subject) -> Iterator[Finding | str]:
    """Reads the source: torch.load with weights_only=False, and pickles whose path comes from outside.

    A path comes from outside unless it is made of constants, also where these are arguments of the only calls of its
    function, or the same file writes to what it names so. Bytes that a function unpickles are reported if it reads them
    from a file or a connection: processes of one training exchange others among themselves. A source that compares
    checksums, as those of data sets do, knows its pickles. Functions that a script names nowhere are left out.

    A pickle names functions that are called as it is read: Python's documentation of pickle warns of it, and PyTorch
    made weights_only=True the default in 2.6.
    """
    findings, files = [], _files(subject)
    for file in files:
        modules = set[str]() if any(source.calls(source.tree(file), *_CHECKS)) else _unpickling(source.tree(file))
        for call in source.calls(source.tree(file), "load", "loads", "Unpickler", "_Unpickler", "read_pickle"):
            place, name = Place(file, call.lineno), ast.unparse(call.func)
            if _is_of_other_python(place) or (subject.script is not None and _is_idle(place, files)):
                continue
            if name.endswith("load") and any(ast.unparse(item) == "weights_only=False" for item in call.keywords):
                fix = ast.unparse(call).replace("weights_only=False", "weights_only=True")
                findings.append(Finding(UNSAFE_LOAD, place, f"{name} with weights_only=False", fix + _TENSORS))
            elif name.partition(".")[0] in modules or (modules and name.endswith("read_pickle")):
                if name.endswith("loads") and not any(source.calls(_scope(place), *_READING)):
                    continue
                if not call.args or not _is_fixed(call.args[0], place, files):
                    message = f"{name} reads a pickle from a path that is given from outside"
                    findings.append(Finding(replace(UNSAFE_LOAD, severity="warning"), place, message, _FIX))
    yield from findings or ["no file is loaded in a way that could run its code"]


PROBE = Probe(look=unsafe_load, defects=(UNSAFE_LOAD,), needs=(), is_light=True)


def _unpickling(tree: ast.AST) -> set[str]:
    """The names that a file has for modules that unpickle."""
    names = (alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names)
    return {alias.asname or alias.name for alias in names if alias.name in _UNPICKLES} | _UNPICKLES


def _is_of_other_python(place: Place) -> bool:
    """Whether a line is in a branch for other versions of Python than this one."""
    for node in source.around(place, ast.If):
        test = ast.unparse(node.test)
        if re.fullmatch(r"sys\.version_info[\[\]\w., ()<>=!]*", test):
            is_body = node.body[0].lineno <= place.line <= (node.body[-1].end_lineno or 0)
            return is_body != bool(eval(test, {"sys": sys}))  # noqa: S307  # a comparison of the version
    return False


def _is_idle(place: Place, files: list[str]) -> bool:
    """Whether a line is in a function that no file names."""
    function = source.function_at(place)
    if function is None or function.name.startswith("__"):
        return False
    nodes = [(file, node) for file in files for node in ast.walk(source.tree(file))]
    names = {node.id for _, node in nodes if isinstance(node, ast.Name)}
    names |= {node.name for _, node in nodes if isinstance(node, ast.alias)}
    by_object = [(file, node) for file, node in nodes if getattr(node, "attr", "") == function.name]
    is_named = not names.isdisjoint({function.name, "getattr"})
    return not is_named and not any(_may_be(place, file, node) for file, node in by_object)


def _may_be(place: Place, file: str, reference: ast.AST) -> bool:
    """Whether a reference in a file may be to the function around a line: not `torch.load` to a method."""
    owner = reference.value if isinstance(reference, ast.Attribute) else None
    is_method = bool(source.around(place, ast.ClassDef))
    return not (is_method and isinstance(owner, ast.Name) and owner.id in _imported(file))


def _scope(place: Place) -> ast.AST:
    return source.function_at(place) or source.tree(place.file)


def _is_fixed(node: ast.AST, place: Place, files: list[str], depth: int = _DEPTH) -> bool:
    """Whether a path, or a file that is opened, is made of constants alone.

    Args:
        node: that stands for it.
        place: where it stands.
        files: in which its function may be called.
        depth: names that may still be followed.
    """
    name = ast.unparse(node)
    if not isinstance(node, ast.Name) and name in _written(place.file):
        return True
    if name not in _imported(place.file) and (isinstance(node, ast.Name) or re.fullmatch(r"self\.\w+", name)):
        values = list(_values(name, place, files)) if depth else []
        if not values and "*" in _imported(place.file):  # among which it may be
            return True
        return bool(values) and all(value and _is_fixed(value, where, files, depth - 1) for value, where in values)
    if isinstance(node, ast.Attribute) and node.attr in _OUTSIDE:
        return False
    if isinstance(node, ast.Call) and name_of(node) not in _PATHS:
        return False
    parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
    return all(_is_fixed(part, place, files, depth) for part in parts)


def _written(file: str) -> set[str]:
    """The paths that a file opens to write to, as it names them."""
    calls = [call for call in source.calls(source.tree(file), "open") if call.args]
    options = [(call, [*call.args[1:], *(option.value for option in call.keywords)]) for call in calls]
    return {ast.unparse(call.args[0]) for call, modes in options if _WRITES.intersection(map(ast.unparse, modes))}


def _imported(file: str) -> set[str]:
    """The names that a file imports; Python's own ones are as fixed."""
    nodes = [node for node in ast.walk(source.tree(file)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return {(alias.asname or alias.name).partition(".")[0] for node in nodes for alias in node.names} | _BUILTIN


def _values(name: str, place: Place, files: list[str]) -> Iterator[tuple[ast.expr | None, Place]]:
    """What a name or an attribute is assigned here, or by callers; None where nobody knows."""
    function, classes = source.function_at(place), source.around(place, ast.ClassDef)
    names = [item.arg for item in function.args.args] if function else []
    if function is not None and name in names[names[:1] == ["self"] :]:
        index = names.index(name)
        default = dict(zip(names[::-1], function.args.defaults[::-1], strict=False)).get(name)
        called = classes[-1].name if function.name == "__init__" and classes else function.name
        for file in files:
            for call in (call for call in source.calls(source.tree(file), called) if _may_be(place, file, call.func)):
                arguments = call.args[index - (names[0] == "self") :][:1]
                arguments += [option.value for option in call.keywords if option.arg == name]
                yield (arguments[0], Place(file, call.lineno)) if arguments else (default, place)
        return
    for scope in filter(None, (function, *classes[-1:], source.tree(place.file))):
        bindings = [(n, v) for n in ast.walk(scope) for to, v in _bindings(n) if to and ast.unparse(to) == name]
        around = [
            (n, v) for n, v in bindings if isinstance(n, ast.With) and n.lineno <= place.line <= (n.end_lineno or 0)
        ]
        if bindings:
            yield from ((value, Place(place.file, value.lineno)) for _, value in around[-1:] or bindings)
            return


def _bindings(node: ast.AST) -> Iterator[tuple[ast.expr | None, ast.expr]]:
    """Targets and what they are assigned, by `=`, `with` or `for`."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, ast.With):
        yield from ((item.optional_vars, item.context_expr) for item in node.items)
    elif isinstance(node, ast.For | ast.comprehension):
        yield node.target, node.iter


def _files(subject: Subject) -> list[str]:
    things = [subject.data, *(loader.dataset for loader in subject.loaders("train"))]
    return sorted({*subject.files, *source.files_of(*(thing for thing in things if thing is not None))})
