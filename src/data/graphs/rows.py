"""Graphs as they are listed: names of nodes, columns of features, and pairs of names."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, cat

from playbook import UserError, nearest

Pair = tuple[str, str]


class GraphRows(NamedTuple):
    """A graph before its features are encoded.

    Args:
        name: of the graph.
        nodes: names of the N nodes.
        columns: values of each node, by column; empty if there is no table of nodes, or a matrix.
        matrix: features (N, D) that are numbers already, or None.
        edges: source and target (E, 2), numbers of nodes; -1 where no node has the name.
        pairs: names of source and target of each edge; None for numbers.
        places: file and line of each edge, or a word for all of them.
        node_places: file and line of each node, or a word for all of them.
    """

    name: str
    nodes: Sequence[str]
    columns: Mapping[str, Sequence[Any]]
    matrix: Tensor | None
    edges: np.ndarray
    pairs: Sequence[Pair] | None = None
    places: Sequence[str] | str = "edges"
    node_places: Sequence[str] | str = "nodes"

    def edge_place(self, number: int) -> str:
        return f"edge {number + 1}" if isinstance(self.places, str) else self.places[number]

    def node_place(self, number: int) -> str:
        return f"node {self.nodes[number]}" if isinstance(self.node_places, str) else self.node_places[number]

    def outside(self) -> np.ndarray:
        """Numbers of the edges that name a node that is not there."""
        return np.flatnonzero(((self.edges < 0) | (self.edges >= len(self.nodes))).any(axis=1))

    def fault(self, number: int) -> str:
        """What is wrong with an edge that names a node that is not there."""
        if self.pairs is None:
            ends = [str(end) for end in self.edges[number] if not 0 <= end < len(self.nodes)]
            return f"an edge names node {ends[0]}, expected 0 to {len(self.nodes) - 1}"
        names = [name for name, end in zip(self.pairs[number], self.edges[number], strict=True) if end < 0]
        some = ", ".join(self.nodes[:3]) + (", …" if len(self.nodes) > 3 else "")
        near = nearest(names[0], self.nodes) if len(self.nodes) < 100_000 else ""
        return f"an edge names node {names[0]}, but the {len(self.nodes):,} nodes are {some or 'none'}{near}"


def number_pairs(pairs: Sequence[Pair], nodes: Sequence[str]) -> np.ndarray:
    """Numbers of the nodes that pairs name (E, 2), -1 for names that no node has."""
    numbers = {name: number for number, name in enumerate(nodes)}
    return np.array([[numbers.get(end, -1) for end in pair] for pair in pairs], dtype=np.int64).reshape(-1, 2)


def check_names(nodes: Sequence[str], place: str) -> None:
    """Refuses two nodes of a name.

    Raises:
        UserError: there are two.
    """
    if len(set(nodes)) < len(nodes):
        names = set()
        for name in nodes:
            if name in names:
                raise UserError(f"{place}: two nodes are called {name}, expected different names")
            names.add(name)


def join_known(known: GraphRows, rows: GraphRows, adds_nodes: bool) -> tuple[GraphRows, np.ndarray]:
    """Adds the nodes and edges of an input to a known graph.

    Args:
        known: the graph of the training.
        rows: the input; nodes of the known graph are not in its table.
        adds_nodes: whether nodes that only edges name are new ones, without features of their own.

    Returns:
        Both together, the new nodes last, and the new edges (E', 2), numbers in it.

    Raises:
        UserError: a new node has the name of a known one.
    """
    taken = set(known.nodes)
    if twice := [name for name in rows.nodes if name in taken]:
        raise UserError(f"--input: {rows.name}: node {twice[0]} is in the training's graph already, expected new nodes")
    pairs = rows.pairs or ()
    new = list(rows.nodes)
    if adds_nodes:
        new += [name for name in dict.fromkeys(end for pair in pairs for end in pair) if name not in taken]
    nodes = [*known.nodes, *new]
    own = number_pairs(pairs, nodes)
    columns = {name: [*values, *rows.columns.get(name, [None] * len(new))] for name, values in known.columns.items()}
    matrix = known.matrix if known.matrix is None or rows.matrix is None else cat([known.matrix, rows.matrix])
    places = [known.edge_place(number) for number in range(len(known.edges))]
    places += [rows.edge_place(number) for number in range(len(own))]
    known_pairs = known.pairs or [("", "")] * len(known.edges)
    joined = GraphRows(
        rows.name, nodes, columns, matrix, np.concatenate([known.edges, own]), [*known_pairs, *pairs], places
    )
    return joined, own
