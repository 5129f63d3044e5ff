"""Imports what is asked of torchmetrics, and not all that it would import at its start."""

import ast
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

PACKAGES = ("torchmetrics", "torchmetrics.functional")
FIRST = "torchmetrics.utilities"  # its modules and torchmetrics.metric import one another, which goes well in one order
PLOT = "torchmetrics.utilities.plot"
NEED_ALL = ("torchmetrics.audio", "torchmetrics.functional.audio")  # count on names that the `__init__` adds to SciPy


def import_by_name() -> None:
    """Before Lightning is imported: has torchmetrics import what is asked of it, and no more.

    Lightning imports torchmetrics for its class Metric. The package's `__init__` then imports metrics of images, sound
    and text, and by way of them torchvision, transformers and SciPy: half of the time that a start takes. From now on,
    `from torchmetrics import X` imports the module that the `__init__` takes X from; a name that it does not import by
    itself runs all of it. Where torchmetrics is imported already, nothing changes.

    matplotlib is imported by the first plot of a metric.
    """
    if "torchmetrics" not in sys.modules and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in NEED_ALL:
            _complete(sys.modules["torchmetrics"])
        loader = _ByName if fullname in PACKAGES else _WithoutMatplotlib if fullname == PLOT else None
        spec = PathFinder.find_spec(fullname, path, target) if loader is not None else None
        if loader is not None and spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = loader(fullname, spec.loader.path)
        return spec


class _WithoutMatplotlib(SourceFileLoader):
    """Runs the module of plots, which imports matplotlib when one is drawn."""

    def exec_module(self, module: ModuleType) -> None:
        tree = ast.parse(self.get_data(self.path))
        for node in tree.body:
            if isinstance(node, ast.If) and ast.unparse(node.test) == "_MATPLOTLIB_AVAILABLE":
                node.body = [part for part in node.orelse if isinstance(part, ast.Assign)]  # the types, which say less
        vars(module).update(plt=_Module("matplotlib.pyplot"), style_change=_style)
        exec(compile(tree, self.path, "exec"), vars(module))  # noqa: S102  # as any loader does


class _Module(ModuleType):
    """A module that is imported when it is asked for a name."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def _style(style: Any) -> Iterator[None]:
    """As matplotlib's, which this imports."""
    with importlib.import_module("matplotlib.pyplot").style.context(style):
        yield


class _ByName(SourceFileLoader):
    """Runs an `__init__` without its imports from the package, and without SciPy, which it changes."""

    def exec_module(self, module: ModuleType) -> None:
        tree = ast.parse(self.get_data(self.path))
        imports: list[Any] = [node for node in tree.body if _imports_from(node, module.__name__)]
        rest = [node for node in tree.body if node not in imports and not _is_conditional(node, module.__name__)]
        origins = {alias.asname or alias.name: (node.module, alias.name) for node in imports for alias in node.names}
        module.__getattr__ = partial(_resolve, module, origins)  # PEP 562
        exec(compile(ast.Module(rest, []), self.path, "exec"), vars(module))  # noqa: S102  # as any loader does
        importlib.import_module(FIRST)

    def complete(self, module: ModuleType) -> None:
        """Runs the whole `__init__`."""
        if vars(module).pop("__getattr__", None) is not None:
            super().exec_module(module)


def _complete(module: ModuleType) -> None:
    loader = module.__spec__.loader if module.__spec__ is not None else None
    if isinstance(loader, _ByName):
        loader.complete(module)


def _imports_from(node: ast.AST, package: str) -> bool:
    """Whether a statement imports names from a package, and not all of them."""
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package) and node.names[0].name != "*"


def _is_conditional(node: ast.stmt, package: str) -> bool:
    """Whether a statement imports from the package, or changes SciPy, where something is installed."""
    parts = list(ast.walk(node)) if isinstance(node, ast.If) else []
    uses_scipy = any(isinstance(part, ast.Name) and part.id == "scipy" for part in parts)
    return uses_scipy or any(_imports_from(part, package) for part in parts)


def _resolve(module: ModuleType, origins: dict[str, tuple[str, str]], name: str) -> Any:
    if name not in origins:
        _complete(module)
        return getattr(module, name)  # raises as for any module
    source, original = origins[name]
    if source == module.__name__:
        return importlib.import_module(f"{source}.{original}")  # which sets the attribute
    value = getattr(importlib.import_module(source), original)
    setattr(module, name, value)
    return value
