"""The former name of Lightning's package: most public modules import `pytorch_lightning`."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from playbook.processes import is_first_process
from playbook.renamed import Alias

FORMER, PRESENT = "pytorch_lightning", "lightning.pytorch"


class _Legacy(Alias):
    """Imports the modules of the present name under the former one.

    A package of the former name is installed with Lightning, but its classes are others: the Trainer would refuse them.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name.partition(".")[0] == FORMER else None

    def name_of(self, alias: str) -> str:
        if alias == FORMER and is_first_process():
            print(f"{FORMER}: imported as {PRESENT}, its present name", file=sys.stderr)
        return PRESENT + alias.removeprefix(FORMER)


_legacy = _Legacy()


def install() -> None:
    """Makes `import pytorch_lightning` mean `lightning.pytorch`, unless the package itself is imported already."""
    if _legacy not in sys.meta_path and FORMER not in sys.modules:
        sys.meta_path.insert(0, _legacy)
