"""Files that may run code when they are loaded."""

import ast
import inspect
import sys
from collections.abc import Iterator

from playbook.doctor import source
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.subject import Subject

UNSAFE_LOAD = Defect(
    "unsafe-load",
    "critical",
    "Whoever wrote the file can run any code when it is loaded.",
    section="Code quality",
    shown_by=Evidence("source", "the calls that load files were read"),
)
DEFECTS = (UNSAFE_LOAD,)
LIGHT = True

_CHECKS = ("check_integrity", "_check_integrity", "check_md5", "md5", "sha256")
_READING = ("open", "read", "read_bytes", "recv", "get", "urlopen")
_UNPICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib"}


def unsafe_load(subject: Subject) -> Iterator[Finding | str]:
    """Reads the source: torch.load with weights_only=False, and pickles whose path comes from outside.

    Bytes that a function unpickles are reported if it reads them from a file or a connection: processes of one training
    exchange others among themselves. A source that compares checksums, as those of data sets do, knows its pickles.

    A pickle names functions that are called as it is read: Python's documentation of pickle warns of it, and PyTorch
    made weights_only=True the default in 2.6.
    """
    findings = []
    for file in _files(subject):
        modules = set[str]() if any(source.calls(source.tree(file), *_CHECKS)) else _unpickling(source.tree(file))
        for call in source.calls(source.tree(file), "load", "loads", "Unpickler", "_Unpickler", "read_pickle"):
            place = Place(file, call.lineno)
            if (danger := _danger(call, place, modules)) is not None:
                findings.append(Finding(UNSAFE_LOAD, place, *danger))
    yield from findings or ["no file is loaded in a way that could run its code"]


def _unpickling(tree: ast.AST) -> set[str]:
    """The names that a file has for modules that unpickle."""
    names = (alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names)
    return {alias.asname or alias.name for alias in names if alias.name in _UNPICKLES} | _UNPICKLES


def _danger(call: ast.Call, place: Place, modules: set[str]) -> tuple[str, str] | None:
    """What is wrong with a call that loads, and what to write in its place.

    Args:
        call: of a function that loads.
        place: of the call.
        modules: names of modules that unpickle.
    """
    name = ast.unparse(call.func)
    is_constant = bool(call.args) and isinstance(_opened(call.args[0], place), ast.Constant)
    if name.endswith("load") and any(ast.unparse(item) == "weights_only=False" for item in call.keywords):
        fix = ast.unparse(call).replace("weights_only=False", "weights_only=True") + "  # saved as tensors alone"
        return f"{name} with weights_only=False", fix
    if (name.partition(".")[0] in modules or name.endswith("read_pickle")) and not is_constant:
        if name.endswith("loads") and not any(source.calls(_around(place), *_READING)):
            return None
        fix = "torch.load(path, weights_only=True)  # saved by torch.save; np.load for arrays, json for the rest"
        return f"{name} reads a pickle from a path that is given from outside", fix
    return None


def _around(place: Place) -> ast.AST:
    return source.function_at(place) or source.tree(place.file)


def _opened(file: ast.expr, place: Place) -> ast.expr:
    """The path of a file that is opened here or in the `with` around; or what stands there."""
    for block in source.around(place, ast.With):
        for item in block.items:
            if item.optional_vars is not None and ast.unparse(item.optional_vars) == ast.unparse(file):
                file = item.context_expr
    return next((call.args[0] for call in source.calls(ast.Expr(file), "open") if call.args), file)


def _files(subject: Subject) -> list[str]:
    things = [*subject.model.modules(), subject.data, *[loader.dataset for loader in subject.loaders("train")]]
    modules = {cls.__module__ for thing in things if thing is not None for cls in source.classes_of(thing)}
    files = [inspect.getsourcefile(sys.modules[name]) for name in modules if name in sys.modules]
    return sorted({*getattr(subject.model, "files", ()), *filter(None, files)})
