"""Who imports whom, by reading the source: layers without an arrow that runs back up, and no circle."""

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

Graph = Mapping[str, set[str]]  # the modules that each module imports


def modules(folder: Path) -> dict[str, Path]:
    """The files of a package by the names that they are imported by.

    Args:
        folder: of the package.
    """
    names = {}
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder.parent).with_suffix("").parts
        names[".".join(parts).removesuffix(".__init__")] = file
    return names


def imported(file: Path, known: Mapping[str, Path]) -> set[str]:
    """What a file imports, also inside of functions and for types alone.

    Args:
        file: to read.
        known: modules, to tell `from package import module` from `from module import name`.
    """
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            inner = [(f"{node.module}.{alias.name}", str(node.module)) for alias in node.names]
            names |= {name if name in known else module for name, module in inner}
    return names


def graph(folder: Path) -> dict[str, set[str]]:
    """The modules of a package, each with those of the package that it imports."""
    files = modules(folder)
    return {name: (imported(file, files) & files.keys()) - {name} for name, file in files.items()}


def room(name: str, rooms: Sequence[str]) -> str:
    """The longest prefix of a module's name that is one of these; the name itself if none is."""
    return max((prefix for prefix in rooms if f"{name}.".startswith(f"{prefix}.")), key=len, default=name)


def upward(arrows: Graph, layers: Sequence[Sequence[str]]) -> list[str]:
    """Imports of a higher layer, or of a module that is in none.

    Args:
        arrows: of the modules.
        layers: prefixes of names, from the bottom up; the longest that fits decides.
    """
    floors = {prefix: number for number, prefixes in enumerate(layers) for prefix in prefixes}
    found = []
    for name, others in arrows.items():
        for other in others:
            floor, lower = (floors.get(room(each, list(floors))) for each in (name, other))
            if floor is None or lower is None or lower > floor:
                found.append(f"{name} → {other}")
    return found


def circle(arrows: Graph) -> list[str]:
    """The modules of a circle, the first one again at its end; an empty list if there is none."""
    done: set[str] = set()

    def follow(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for other in sorted(arrows.get(name, ())):
            if found := follow(other, [*path, name]):
                return found
        done.add(name)
        return []

    return next((found for name in arrows if (found := follow(name, []))), [])


def between_rooms(arrows: Graph, rooms: Sequence[str]) -> dict[str, set[str]]:
    """The same arrows between folders; a module that is in no room is one by itself."""
    joined: dict[str, set[str]] = {}
    for name, others in arrows.items():
        here = room(name, rooms)
        joined.setdefault(here, set()).update({room(other, rooms) for other in others} - {here})
    return joined
