"""Imports of torchmetrics that Lightning brings and most programs under review do not need."""

import logging
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

_PACKAGE = "torchmetrics"
_NAMES = {"Metric": "metric", "MetricCollection": "collections", "__version__": "__about__"}  # that Lightning needs
_LIGHT = tuple(f"{_PACKAGE}.{name}" for name in ("__about__", "collections", "metric", "utilities"))


def defer_torchmetrics() -> None:
    """Before Lightning is imported: has torchmetrics import its metrics when a program asks for one.

    Lightning needs two of its classes, but its `__init__` imports torchvision, transformers and SciPy: half of the
    time and of the memory of a review's start, and each of its processes copies the tables of that memory.
    """
    if _PACKAGE not in sys.modules and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.startswith(f"{_PACKAGE}.") and not fullname.startswith(_LIGHT):
            _complete(sys.modules[_PACKAGE])
            if fullname in sys.modules:  # it has just been imported, and would be once more
                return ModuleSpec(fullname, _Imported(sys.modules.pop(fullname)))
        spec = PathFinder.find_spec(fullname, path, target) if fullname == _PACKAGE else None
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Deferred(fullname, spec.loader.path)
        return spec


class _Imported(Loader):
    """Gives a module that is there already."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec


class _Deferred(SourceFileLoader):
    """Runs the `__init__` when somebody asks for a name that Lightning does not need."""

    def exec_module(self, module: ModuleType) -> None:
        module.__getattr__ = partial(_resolve, module)  # PEP 562
        import_module(f"{_PACKAGE}.utilities")  # before `metric`: the two import each other

    def complete(self, module: ModuleType) -> None:
        if vars(module).pop("__getattr__", None) is not None:
            super().exec_module(module)


def _resolve(module: ModuleType, name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(f"{_PACKAGE}.{_NAMES[name]}"), name)
    if name == "_logger":  # which its utilities import
        return logging.getLogger(_PACKAGE)
    _complete(module)
    return getattr(module, name)


def _complete(module: ModuleType) -> None:
    loader = module.__spec__.loader if module.__spec__ is not None else None
    if isinstance(loader, _Deferred):
        loader.complete(module)
