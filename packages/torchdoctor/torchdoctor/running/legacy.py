"""Supports Lightning's former package name, `pytorch_lightning`, which most public modules import."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

FORMER, PRESENT = "pytorch_lightning", "lightning.pytorch"


class _Legacy(MetaPathFinder, Loader):
    """An import hook that maps the former name to today's modules; the Trainer refuses the former classes."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name.partition(".")[0] == FORMER else None

    def create_module(self, spec: ModuleSpec) -> Any:
        module = import_module(PRESENT + spec.name.removeprefix(FORMER))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Gives the module its own specification back; its code has run already."""
        assert module.__spec__ is not None, module
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Makes `import pytorch_lightning` mean `lightning.pytorch`, unless the package itself is imported already."""
    if FORMER not in sys.modules and not any(type(finder).__name__ == "_Legacy" for finder in sys.meta_path):
        sys.meta_path.insert(0, _Legacy())
