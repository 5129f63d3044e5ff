"""Tables of edges and nodes: CSV, TSV, JSON lines and Parquet."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from playbook import UserError, category_of, nearest
from src.data.row_files import SUFFIXES, Form, read_rows

ENDS = (("source", "target"), ("src", "dst"), ("from", "to"))
NODE = ("node", "node_id", "id", "name")
GRAPH = ("graph", "graph_id")
NAMELESS = frozenset({""})  # NA is a name


class Line(NamedTuple):
    """A row of a table, with its place, as in edges.csv:17, the name of its graph, and its values by column."""

    place: str
    graph: str
    values: dict[str, Any]


def find_table(folder: Path, *stems: str) -> Path | None:
    """The table of a folder with one of these names, or None.

    Raises:
        UserError: there are several.
    """
    files = [file for file in sorted(folder.iterdir()) if file.stem.lower() in stems and is_table(file)]
    if len(files) > 1:
        both = " and ".join(file.name for file in files)
        raise UserError(f"--data.root: {folder.as_posix()} holds {both}, expected one table")
    return files[0] if files else None


def is_table(file: Path) -> bool:
    """Whether a file is a table by its suffix."""
    return file.suffix.lower() in SUFFIXES and file.is_file()


def read_table(file: Path, option: str, warn: Callable[[str], Any]) -> list[Line]:
    """All rows of a table; an empty one has none.

    Raises:
        UserError: a row cannot be read.
    """
    lines = []
    for number, row in read_rows(file, Form(option=option), None, warn):
        place = f"{file.name}:{number}"
        if isinstance(row, str):
            raise UserError(f"{option}: {file.as_posix()}:{number}: {row}")
        graph = next((name_of(row[column]) for column in GRAPH if column in row), "")
        lines.append(Line(place, graph, row))
    return lines


def edges_of(lines: Sequence[Line], option: str) -> list[tuple[str, str]]:
    """Names of source and target of each row.

    Raises:
        UserError: the table has no such columns, or a name is missing.
    """
    if not lines:
        return []
    has = [column for column in lines[0].values if column not in GRAPH]
    known = next((pair for pair in ENDS if set(pair) <= set(has)), None)
    if known is None:
        file = lines[0].place.rpartition(":")[0]
        raise UserError(
            f"{option}: {file}: expected columns source and target, got {', '.join(has)}{nearest('source', has)}"
        )
    pairs = []
    for line in lines:
        source, target = (name_of(line.values[end]) for end in known)
        if not source or not target:
            raise UserError(f"{option}: {line.place}: expected a source and a target, got {source or 'none'}")
        pairs.append((source, target))
    return pairs


def node_column(lines: Sequence[Line], option: str) -> str:
    """Name of the column with the names of nodes.

    Raises:
        UserError: the table has none.
    """
    has = list(lines[0].values)
    known = next((column for column in NODE if column in has), None)
    if known is None:
        file = lines[0].place.rpartition(":")[0]
        raise UserError(f"{option}: {file}: expected a column node, got {', '.join(has[:5])}{nearest('node', has)}")
    return known


def name_of(value: Any) -> str:
    """The name in a field, empty if it is missing; 3 and 3.0 are the same."""
    return category_of(value, NAMELESS)
