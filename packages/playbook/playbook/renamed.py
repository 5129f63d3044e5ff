"""Modules under another name than their own: saved runs name the package `src`, which may have been renamed since."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

FORMER = "src"  # the package that runs name which were saved before it was renamed


class Alias(MetaPathFinder, Loader):
    """Imports a module under another name than its own. A subclass finds it, and says what its name is."""

    def name_of(self, alias: str) -> str:
        """The name that a module has."""
        raise NotImplementedError

    def create_module(self, spec: ModuleSpec) -> Any:
        module = import_module(self.name_of(spec.name))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Gives the module its own specification back; its code has run already."""
        assert module.__spec__ is not None, module
        module.__spec__ = module.__spec__.loader_state


class _Former(Alias):
    """Imports a module of the present package under its former name, if there is none of that name."""

    def __init__(self) -> None:
        self.package = FORMER  # its present name

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        parent = name.rpartition(".")[0]
        if self.package == FORMER or name.partition(".")[0] != FORMER:
            return None
        # below a former name, the path leads to the present files: Python would load them a second time
        is_below_former = parent in sys.modules and sys.modules[parent].__name__ != parent
        return None if not is_below_former and PathFinder.find_spec(name, path) else ModuleSpec(name, self)

    def name_of(self, alias: str) -> str:
        return self.package + alias.removeprefix(FORMER)


_former = _Former()


def rename(package: str) -> None:
    """From now on in this process, names of `src` mean this package, where there is no `src`."""
    _former.package = package or FORMER
    if _former.package != FORMER and _former not in sys.meta_path:
        sys.meta_path.insert(0, _former)
