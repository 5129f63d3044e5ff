"""Inputs of `predict --input` and of the server: tables of edges and nodes, and JSON objects."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from playbook import UserError, csv_rows, decode_text, parse_json
from src.data.graphs.rows import GraphRows, Pair, check_names, number_pairs
from src.data.graphs.tables import GRAPH, Line, edges_of, find_table, is_table, name_of, node_column, read_table
from src.data.row_files import SUFFIXES as TABLES

SUFFIXES = (*TABLES, ".json")
KEYS = ("graph", "edges", "nodes", "features", "pairs")  # of an object


def group_inputs(
    names: Sequence[str], places: Sequence[Any], warn: Callable[[str], Any]
) -> list[tuple[str, dict[str, Any]]]:
    """Puts tables of edges together with the table of nodes in their folder.

    Args:
        names: of the inputs.
        places: path, bytes, text or object of each. A table whose name begins with node is one of nodes, one whose
            name begins with graph is left out, as it has labels.
        warn: called with a sentence about tables.

    Returns:
        Name and object of each graph. A column `graph` of the edges divides a table into graphs.
    """
    groups: list[tuple[str, dict[str, Any]]] = []
    read: set[Path] = set()
    for name, place in zip(names, places, strict=True):
        if not isinstance(place, Path) or not is_table(place):
            groups.append((name, read_object(place, name)))
            continue
        kind = place.stem.lower()
        if place in read or kind.startswith("graph"):
            continue
        nodes = find_table(place.parent, "nodes", "node")
        if kind.startswith("node"):
            if not any(isinstance(own, Path) and own.parent == place.parent and own != place for own in places):
                read.add(place)
                groups += _by_graph(Path(name).stem, [], read_table(place, "--input", warn))
            continue
        nodes = None if nodes == place else nodes
        own = read_table(nodes, "--input", warn) if nodes is not None else None
        groups += _by_graph(Path(name).stem, read_table(place, "--input", warn), own)
    return groups


def _by_graph(name: str, edges: Sequence[Line], nodes: Sequence[Line] | None) -> list[tuple[str, dict[str, Any]]]:
    """An object for each graph."""
    own = nodes or ()
    graphs = list(dict.fromkeys(line.graph for line in (*own, *edges))) or [""]
    groups = []
    for graph in graphs:
        content: dict[str, Any] = {
            "graph": graph or name,
            "edges": [list(pair) for pair in edges_of([line for line in edges if line.graph == graph], "--input")],
            "places": [line.place for line in edges if line.graph == graph],
        }
        if nodes is not None:
            content["nodes"] = [line.values for line in nodes if line.graph == graph]
        groups.append((content["graph"], content))
    return groups


def read_object(source: Any, name: str = "graph") -> dict[str, Any]:
    """The object of a graph: of a path or the bytes of a JSON file, a table of edges as text, or itself.

    Raises:
        UserError: it is none.
    """
    if isinstance(source, Mapping):
        return dict(source)
    if isinstance(source, Path):
        if is_table(source):
            groups = group_inputs([source.name], [source], lambda text: None)
            if len(groups) != 1:
                raise UserError(f"--input: {source.as_posix()}: expected one graph, got {len(groups)}")
            return groups[0][1]
        if not source.is_file():
            raise UserError(f"--input: {source.as_posix()}: no such file")
        name, source = source.stem, source.read_bytes()
    text = source if isinstance(source, str) else decode_text(source, f"--input: {name}", "utf-8", "")
    if text.lstrip().startswith("{"):
        try:
            value = parse_json(text)
        except ValueError as error:
            raise UserError(f"--input: {name}: is not valid JSON: {error}") from error
        return {"graph": name, **value}
    rows = list(csv_rows(f"--input: {name}", text))
    if not rows:
        raise UserError(f"--input: {name}: is empty, expected edges")
    columns = [column.strip() for column in rows[0][1]]
    lines = [Line(f"{name}:{number}", "", dict(zip(columns, fields, strict=False))) for number, fields in rows[1:]]
    return {"graph": name, "edges": [list(pair) for pair in edges_of(lines, "--input")]}


def graph_of(content: Mapping[str, Any]) -> GraphRows:
    """The graph of an object. Without `nodes` and `features`, it has none: its edges name known nodes or new ones.

    Raises:
        UserError: it has other keys, or an entry is of another form.
    """
    name = str(content.get("graph", "graph"))
    if unknown := [key for key in content if key not in (*KEYS, "places")]:
        raise UserError(f"--input: {name}: expected {', '.join(KEYS)}, got {unknown[0]}")
    nodes, columns, matrix = _nodes_of(content, name)
    check_names(nodes, f"--input: {name}")
    pairs = pairs_of(content.get("edges", []), name)
    places = content.get("places", "edges")
    return GraphRows(name, nodes, columns, matrix, number_pairs(pairs, nodes), pairs, places)


def pairs_of(entries: Any, name: str) -> list[Pair]:
    """Names of source and target from pairs.

    Raises:
        UserError: an entry is no pair.
    """
    pairs = []
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, list | tuple) or len(entry) != 2:
            raise UserError(f"--input: {name}: edges: expected pairs such as [0, 1], got {entry!r:.60}")
        pairs.append((name_of(entry[0]), name_of(entry[1])))
    return pairs


def _nodes_of(content: Mapping[str, Any], name: str) -> tuple[list[str], dict[str, list[Any]], Tensor | None]:
    """Names, columns and matrix of an object's nodes."""
    nodes, features = content.get("nodes"), content.get("features")
    names: list[str] | None = None
    columns: dict[str, list[Any]] = {}
    if nodes and isinstance(nodes[0], Mapping):
        lines = [Line(f"node {number}", "", dict(row)) for number, row in enumerate(nodes, start=1)]
        column = node_column(lines, f"--input: {name}")
        names = [name_of(row[column]) for row in nodes]
        others = [other for other in nodes[0] if other != column and other not in GRAPH]
        columns = {other: [row.get(other) for row in nodes] for other in others}
    elif nodes is not None:
        names = [name_of(node) for node in nodes]
    if features is None:
        return names or [], columns, None
    try:
        matrix = torch.tensor(features, dtype=torch.float32)
    except (TypeError, ValueError) as error:
        raise UserError(f"--input: {name}: features: expected a list of numbers for each node") from error
    if matrix.ndim != 2 or (names is not None and len(names) != len(matrix)):
        expected = "a list of numbers for each node" if names is None else f"{len(names)} lists of numbers"
        raise UserError(f"--input: {name}: features: expected {expected}, got shape {tuple(matrix.shape)}")
    return names or [str(number) for number in range(len(matrix))], columns, matrix
