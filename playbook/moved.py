"""Names that saved runs know from the time when the machine stood in `src/`, or from before a package was renamed."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

FORMER = "src"  # the package that checkpoints name which were saved before it was renamed
# what a configuration or a checkpoint may name, by module of then and of now
MOVED = {
    "src.callbacks.checkpoint": "playbook.training.resume.checkpoint",
    "src.callbacks.nonfinite": "playbook.training.nonfinite.callback",
    "src.checkpoints": "playbook.checkpoints",
    "src.checkpoints.sharded": "playbook.checkpoints.sharded",
    "src.data.base": "playbook.data.base",
    "src.data.resident": "playbook.data.resident",
    "src.optim": "playbook.optim",
    "src.optim.groups": "playbook.optim.groups",
    "src.optim.muon": "playbook.optim.muon",
    "src.optim.schedules": "playbook.optim.schedules",
    "src.tasks.base": "playbook.task",
}


class _Former(MetaPathFinder, Loader):
    """Imports a module of now under its name of then, if there is none of that name."""

    package = ""  # of the user, that a former name of it stands for

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != FORMER and not name.startswith(f"{FORMER}."):
            return None
        if name in MOVED:
            return None if PathFinder.find_spec(name, path) else ModuleSpec(name, self)
        return ModuleSpec(name, self) if self.package and self.package != FORMER else None

    def create_module(self, spec: ModuleSpec) -> Any:
        return import_module(MOVED.get(spec.name) or self.package + spec.name.removeprefix(FORMER))

    def exec_module(self, module: ModuleType) -> None:
        """It is there already."""


_former = _Former()


def install() -> None:
    """Makes the former names importable, after all others."""
    if _former not in sys.meta_path:
        sys.meta_path.append(_former)


def rename(package: str) -> None:
    """Lets names of `src` mean this package, where there is no `src`."""
    _former.package = package
