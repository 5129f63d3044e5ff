"""Graphs in tables of one's own: edges, nodes with features, and classes of nodes or graphs."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from playbook import UserError, nearest
from src.data.graphs.base import Content, GraphData
from src.data.graphs.graph import UNKNOWN
from src.data.graphs.rows import GraphRows, check_names, number_pairs
from src.data.graphs.splits import read_labels, split_rows
from src.data.graphs.tables import ENDS, GRAPH, Line, edges_of, find_table, is_table, name_of, node_column, read_table
from src.data.notices import warn
from src.ops.graph_batches import LEVELS, Level

OPTION = "--data.root"


class GraphFiles(GraphData):
    """One graph or many in tables: `edges`, and perhaps `nodes` and `graphs`, as CSV, TSV, JSON lines or Parquet.

    | table | columns |
    |---|---|
    | edges | source and target (or src and dst, from and to), names of nodes; graph |
    | nodes | node (or id), features, label, split; graph |
    | graphs | graph, label, split |

    The column graph says which of several graphs a row belongs to. Without a table of nodes, the nodes are those that
    edges name. Numbers among the features are scaled, words become one-hot; without features, the degree is one-hot.
    Nodes without a label pass messages and count in no split.

    An edge links both directions unless `directed` is set. Equal edges count once; a loop is a neighbour of its own for
    GraphSAGE, GCN and GAT have one at every node anyway; nodes without edges are kept.

    Args:
        root: folder with the tables, or the table of edges.
        level: `node` for classes of nodes, `graph` for classes of graphs, `link` for whether two nodes are linked.
            Defaults to what has labels: graphs, or else nodes, or else links.
        label: column with the class, of nodes or of graphs.
        split: column with train, val or test. Without it, rows are divided at random, with the same shares of each
            class.
        directed: whether messages go from source to target alone.
        leave_out: columns of nodes that are no features.
        fan_outs: for level node, largest number of neighbours of each node, of these neighbours, and so on, as in
            [10, 10]. They are drawn anew in every epoch (Hamilton et al. 2017), and batches are of nodes. Evaluation
            uses the whole graph. By default, training does too.
        val_share: share of the labelled nodes or graphs, or of the links, used for validation, in (0, 1).
        test_share: share used for testing, in [0, 1).
        split_seed: seed of the division.
        bucket: number of training batches whose graphs are sorted by size together, to reduce padding; 0 turns it off.
        batch_size: graphs, or with fan_outs nodes, per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        on_error: what happens with edges that name a node that is not there, and with inputs of `predict --input` that
            cannot be read: `stop` ends the run, `skip` leaves them out and counts them (`skipped_samples` in
            metrics.json).
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.

    Shapes:
        features (B, N, D), edges (B, 2, E), padded with -1, num_nodes (B,); target (B,) for level graph, (B, N) for
        level node, -1 for nodes that do not count. For level link, a target is a dict with pairs (B, 2, P) and linked
        (B, P).

    Raises:
        ValueError: a value is out of range.
        UserError: a table lacks a column, a row cannot be read, an edge names a node that is not there, a graph has no
            nodes, or there are no labels.
    """

    def __init__(
        self,
        root: str,
        level: Level | None = None,
        label: str = "label",
        split: str = "split",
        directed: bool = False,
        leave_out: list[str] | None = None,
        fan_outs: list[int] | None = None,
        val_share: float = 0.1,
        test_share: float = 0.2,
        split_seed: int = 0,
        bucket: int = 0,
        batch_size: int = 32,
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
    ) -> None:
        super().__init__(
            directed,
            fan_outs=fan_outs,
            val_share=val_share,
            test_share=test_share,
            split_seed=split_seed,
            batch_size=batch_size,
            num_workers=num_workers,
            on_error=on_error,
            timeout_s=timeout_s,
            bucket=bucket,
        )
        if level is not None and level not in LEVELS:
            raise ValueError(f"level: expected one of {', '.join(LEVELS)}, got {level}")
        self.root = Path(root).expanduser()
        self.level = level
        self.label, self.split = label, split
        self.leave_out = list(leave_out or ())
        self.save_hyperparameters()

    def load(self) -> Content:
        tables = self._read_tables()
        edges, nodes, graphs = tables["edges"], tables["nodes"], tables["graphs"]
        level: Any = self.facts.get("level") or self.level or self._infer_level(nodes, graphs)
        own_graphs = self._divide(edges, nodes, graphs)
        name = self.root.stem
        if level == "link":
            return Content(name, level, own_graphs)
        table, lines = ("graphs", graphs) if level == "graph" else ("nodes", nodes)
        if not lines or self.label not in lines[0].values:
            has = list(lines[0].values) if lines else []
            got = f"got {', '.join(has[:8]) or 'no such table'}{nearest(self.label, has)}"
            raise UserError(f"--data.label {self.label}: expected a column of that name in the table {table}, {got}")
        labels, classes = read_labels(lines, self.label, self.facts.get("classes", ()))
        if count := int((labels == UNKNOWN).sum()):
            self.counts[f"unlabelled_{table}"] = count
        if level == "graph":
            numbers = {rows.name: number for number, rows in enumerate(own_graphs)}
            splits = self._split(lines, labels)
            order = [numbers[line.graph] for line in lines]  # of graphs, from that of the table
            by_graph = dict(zip(order, labels.tolist(), strict=True))
            places = {split: [order[place] for place in own] for split, own in splits.items()}
            return Content(name, level, own_graphs, [by_graph[n] for n in range(len(own_graphs))], places, classes)
        if len(own_graphs) == 1:
            return Content(name, level, own_graphs, [labels], self._split(lines, labels), classes)
        return self._nodes_of_many(name, own_graphs, nodes, labels, classes)

    def _nodes_of_many(
        self, name: str, graphs: list[GraphRows], nodes: Sequence[Line], labels: Any, classes: list[str]
    ) -> Content:
        """Graphs whose nodes have classes; a split has whole graphs, that of the first node of each."""
        first = {line.graph: line for line in reversed(nodes)}
        whole = [first[rows.name] for rows in graphs]
        parts = [labels[[place for place, line in enumerate(nodes) if line.graph == rows.name]] for rows in graphs]
        some_class = labels.new_zeros(len(graphs))
        splits = split_rows(whole, self.split, some_class, self.val_share, self.test_share, self.split_seed)
        return Content(name, "node", graphs, parts, splits, classes)

    def _split(self, lines: Sequence[Line], labels: Any) -> dict[str, list[int]]:
        return split_rows(lines, self.split, labels, self.val_share, self.test_share, self.split_seed)

    def _infer_level(self, nodes: Sequence[Line], graphs: Sequence[Line]) -> Level:
        if graphs and self.label in graphs[0].values:
            return "graph"
        return "node" if nodes and self.label in nodes[0].values else "link"

    def _read_tables(self) -> dict[str, list[Line]]:
        root = self.root.as_posix()
        if not self.root.exists():
            raise UserError(f"--data.root {root}: no such file or folder")
        if self.root.is_file():
            if not is_table(self.root):
                raise UserError(f"--data.root {root}: expected a table of edges, as .csv, .tsv, .jsonl or .parquet")
            return {"edges": read_table(self.root, OPTION, partial(warn, self)), "nodes": [], "graphs": []}
        names = {"edges": ("edges", "edge"), "nodes": ("nodes", "node"), "graphs": ("graphs", "graph")}
        files = {kind: find_table(self.root, *stems) for kind, stems in names.items()}
        if files["edges"] is None:
            has = ", ".join(sorted(file.name for file in self.root.iterdir())[:8]) or "nothing"
            raise UserError(f"--data.root {root}: expected a table edges.csv, .tsv, .jsonl or .parquet, found {has}")
        others = [file.name for file in sorted(self.root.iterdir()) if is_table(file) and file not in files.values()]
        if others:
            self._left_out("files", len(others), f"{len(others)} tables of {root}, such as {others[0]}")
        return {
            kind: [] if file is None else read_table(file, OPTION, partial(warn, self)) for kind, file in files.items()
        }

    def _divide(self, edges: Sequence[Line], nodes: Sequence[Line], graphs: Sequence[Line]) -> list[GraphRows]:
        """The graphs, in the order in which nodes, or else edges, name them."""
        names = list(dict.fromkeys(line.graph for line in (graphs or nodes or edges)))
        of_graph: dict[str, tuple[list[Line], list[Line]]] = {name: ([], []) for name in names}
        for place, lines in enumerate((edges, nodes)):
            for line in lines:
                if line.graph not in of_graph:
                    near = nearest(line.graph, names)
                    raise UserError(f"{OPTION}: {line.place}: no graph is called {line.graph or 'nothing'}{near}")
                of_graph[line.graph][place].append(line)
        self._tell_unread(edges)
        column = node_column(nodes, OPTION) if nodes else ""
        others = {column, *GRAPH, self.label, self.split, *self.leave_out}
        features = [name for name in (nodes[0].values if nodes else ()) if name not in others]
        self.facts["unread"] = sorted(others - {""})
        if unknown := [name for name in self.leave_out if nodes and name not in nodes[0].values]:
            near = nearest(unknown[0], list(nodes[0].values))
            raise UserError(f"--data.leave_out {unknown[0]}: the table of nodes has no such column{near}")
        return [self._rows_of(name, *of_graph[name], column, features) for name in names]

    def _rows_of(
        self, name: str, edges: Sequence[Line], nodes: Sequence[Line], column: str, features: Sequence[str]
    ) -> GraphRows:
        pairs = edges_of(edges, OPTION)
        names = [name_of(line.values[column]) for line in nodes]
        if not column:
            names = list(dict.fromkeys(end for pair in pairs for end in pair))
        own = name or self.root.stem
        if not names:
            raise UserError(f"{OPTION}: {own}: expected at least one node, got an empty graph")
        check_names(names, f"{OPTION}: {own}")
        columns = {feature: [line.values[feature] for line in nodes] for feature in features}
        places = [line.place for line in edges]
        node_places: Any = [line.place for line in nodes] if nodes else "nodes"
        return GraphRows(own, names, columns, None, number_pairs(pairs, names), pairs, places, node_places)

    def _tell_unread(self, edges: Sequence[Line]) -> None:
        columns = {*GRAPH, *(end for pair in ENDS for end in pair)}
        unread = [name for name in (edges[0].values if edges else ()) if name not in columns]
        if unread and not self.has_trained:
            count = f"{len(unread)} column{'s' * (len(unread) > 1)} of the edges"
            self._left_out("columns", len(unread), f"{count}, which nets do not read: {', '.join(unread)}")
