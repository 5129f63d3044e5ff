"""The project of a command: the package of the user's own files, and its folder."""

import os
import site
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from playbook.renamed import rename

PLAYBOOK = str(Path(__file__).parent) + os.sep
PYTHON = tuple(  # and what is installed
    os.path.abspath(folder) + os.sep
    for folder in (
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
        os.path.join(sys.prefix, "lib"),
    )
)


@dataclass(frozen=True)
class Project:
    """A package of the user's, beside which lie `configs/` and `tests/`.

    Args:
        package: its name, `src` in the template; empty where a command is given modules by their full paths alone.
        folder: of the package; it may be missing.
    """

    package: str
    folder: Path

    @property
    def root(self) -> Path:
        """The folder that the package lies in."""
        return self.folder.parent

    @property
    def configs(self) -> Path:
        """Folder of the recipes."""
        return self.root / "configs"

    @property
    def command(self) -> str:
        """How the command line is called, as in «python -m src»."""
        return f"python -m {self.package}" if self.package else "playbook"


_current = Project("src", Path("src").absolute())


def current() -> Project:
    """The project of this process."""
    return _current


def choose(package: str) -> Project:
    """Makes a package the project of this process.

    Args:
        package: name of an importable package. An empty name stands for no package: classes are then given by full
            paths and imported from the working directory, also by a console script, whose path lacks that directory.
    """
    global _current  # noqa: PLW0603  # one command, one project
    if not package and not {"", os.getcwd()} & set(sys.path):
        sys.path.insert(0, os.getcwd())
    spec = find_spec(package) if package else None
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    _current = Project(package, Path(places[0]) if places else Path(package or "src").absolute())
    rename(package)
    return _current


@cache
def is_user_file(file: str) -> bool:
    """Whether code is neither Python's, nor a library's, nor Playbook's, nor its reviewer's."""
    if file.startswith("<"):
        return False
    path = os.path.abspath(file)
    is_installed = any(part in ("site-packages", "dist-packages") for part in path.split(os.sep))
    return not is_installed and not path.startswith((PLAYBOOK, *_reviewer(), *PYTHON))


@cache
def _reviewer() -> tuple[str, ...]:
    """The folder of torchdoctor, which is outside of site-packages where it is installed editable."""
    spec = find_spec("torchdoctor")
    return tuple(folder + os.sep for folder in spec.submodule_search_locations or []) if spec is not None else ()
