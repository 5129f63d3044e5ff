"""Names that saved runs know from the time when the machine stood in `src/`, or from before a package was renamed."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

FORMER = "src"  # the package that checkpoints name which were saved before it was renamed
# what a configuration, a checkpoint or a user's own file may name, by module of then and of now
MOVED = {
    "src.callbacks.checkpoint": "playbook.training.resume.checkpoint",
    "src.callbacks.nonfinite": "playbook.training.nonfinite.callback",
    "src.checkpoints": "playbook.checkpoints",
    "src.checkpoints.sharded": "playbook.checkpoints.sharded",
    "src.data.base": "playbook.data.base",
    "src.data.loader": "playbook.data.loader",
    "src.data.resident": "playbook.data.resident",
    "src.engine": "playbook.training",
    "src.engine.networks": "playbook.network",
    "src.engine.parallel": "playbook.parallel",
    "src.engine.replay": "playbook.training.nonfinite.replay",
    "src.errors": "playbook.errors",
    "src.optim": "playbook.optim",
    "src.optim.groups": "playbook.optim.groups",
    "src.optim.muon": "playbook.optim.muon",
    "src.optim.schedules": "playbook.optim.schedules",
    "src.tasks.base": "playbook.task",
}


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
    """Imports a module of now under its name of then, if there is none of that name."""

    package = ""  # of the user, that a former name of it stands for

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        parent = name.rpartition(".")[0]
        if name != FORMER and not name.startswith(f"{FORMER}."):
            return None
        # below a former name, the path leads to the files of now: Python would load them a second time
        is_below_former = parent in sys.modules and sys.modules[parent].__name__ != parent
        if not is_below_former and PathFinder.find_spec(name, path):
            return None
        is_renamed = self.package and self.package != FORMER
        return ModuleSpec(name, self) if name in MOVED or is_renamed else None

    def name_of(self, alias: str) -> str:
        return MOVED.get(alias) or self.package + alias.removeprefix(FORMER)


_former = _Former()


def install() -> None:
    """Makes the former names importable."""
    if _former not in sys.meta_path:
        sys.meta_path.insert(0, _former)


def rename(package: str) -> None:
    """Lets names of `src` mean this package, where there is no `src`."""
    _former.package = package
