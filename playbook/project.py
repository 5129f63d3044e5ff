"""The project of a command: the package of the user's own files, and its folder."""

import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from playbook import moved


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
    moved.rename(package)
    return _current
