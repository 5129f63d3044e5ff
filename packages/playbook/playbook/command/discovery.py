"""Lists the classes and configs of a project by reading its source, without importing it, so that `list` is fast."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from playbook import project
from playbook.project import Project

PLAYBOOK = Path(__file__).parents[1]
KINDS = ("tasks", "nets", "data", "callbacks", "optim", "strategies")
MACHINE = {  # what the machine adds to the user's own
    "callbacks": [
        "training/nonfinite/callback.py",
        "training/resume/checkpoint.py",
        "training/statistics/callback.py",
    ],
    "optim": ["optim"],
    "strategies": ["checkpoints/sharded.py"],
}
HELPERS = {"Dataset", "IterableDataset", "Sampler", "NamedTuple", "Protocol"}  # bases of what nobody chooses
PARTIAL = ("trainer", "logger", "callbacks", "debug")  # folders of configs that stack on a recipe


@dataclass(frozen=True)
class Entry:
    """A class or config that the command line can name: its name, path and summary."""

    name: str
    path: str
    summary: str


def classes(kind: str) -> tuple[Entry, ...]:
    """Public classes below the project's <kind>/, and those of the machine: a new file is found by being there."""
    own = project.current()
    return _classes(own, kind)


@cache
def _classes(own: Project, kind: str) -> tuple[Entry, ...]:
    return tuple(entry for file, root in _files(own, kind) for entry in _entries(file, root))


@cache
def _files(own: Project, kind: str) -> tuple[tuple[Path, Path], ...]:
    """The files of a kind, each with the folder that its module is imported from."""
    places = [(own.folder / kind, own.folder.parent)]
    places += [(PLAYBOOK / place, PLAYBOOK.parent) for place in MACHINE.get(kind, [])]
    return tuple((file, root) for place, root in places for file in _sources(place))


def _sources(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    return [file for file in sorted(place.rglob("*.py")) if file.stem not in ("__init__", "base")]


@cache
def _entries(file: Path, root: Path) -> list[Entry]:
    module = ".".join(file.relative_to(root).with_suffix("").parts)
    return [
        Entry(node.name, f"{module}.{node.name}", _summary(node))
        for node in ast.parse(_text(file)).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and _can_be_chosen(node)
    ]


def _can_be_chosen(node: ast.ClassDef) -> bool:
    return bool({ast.unparse(base).rpartition(".")[2] for base in node.bases} - HELPERS)


def choices(kind: str) -> list[Entry]:
    """Classes that a user can choose, without those that every run has anyway."""
    return [entry for entry in classes(kind) if not entry.summary.endswith("(always on).")]


def class_paths(name: str, kinds: Iterable[str] = KINDS) -> list[str]:
    """Full paths of our classes with this short name; only the files in which it stands are parsed."""
    own = project.current()
    files = [item for kind in kinds for item in _files(own, kind) if f"class {name}" in _text(item[0])]
    return [entry.path for file, root in files for entry in _entries(file, root) if entry.name == name]


@cache
def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def recipes() -> list[Entry]:
    """Configs that run on their own, with the first comment of each."""
    return [entry for entry in _configs() if Path(entry.path).parent.name not in PARTIAL]


def partials() -> list[Entry]:
    """Configs that stack on a recipe."""
    return [entry for entry in _configs() if Path(entry.path).parent.name in PARTIAL]


def _configs() -> list[Entry]:
    entries, configs = [], project.current().configs
    for file in sorted(configs.glob("*/*.yaml")):
        first = file.read_text(encoding="utf-8").partition("\n")[0]
        summary = first.removeprefix("#").strip().partition(": python -m ")[0]
        entries.append(Entry(file.stem, file.relative_to(configs.parent).as_posix(), summary))
    return entries


def _summary(node: ast.ClassDef) -> str:
    return (ast.get_docstring(node) or "").partition("\n")[0]
