"""Graphs of PyTorch Geometric."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from playbook import UserError, split_indices
from src.data.graphs.base import Content, GraphData
from src.data.graphs.graph import UNKNOWN
from src.data.graphs.rows import GraphRows

MASKS = {"train": "train_mask", "val": "val_mask", "test": "test_mask"}


class GeometricGraphs(GraphData):
    """One or many graphs of PyTorch Geometric, `Data` objects with x, edge_index, y and perhaps masks of splits.

    A y with an entry for each node has the classes of nodes, one with a single entry that of the graph. One graph is
    split by its train_mask, val_mask and test_mask, or else at random; several graphs are split at random. Edges are
    taken as they are: PyTorch Geometric lists both directions of undirected graphs.

    Args:
        graphs: list of the graphs; or in a command the dotted name of such a list, of a data set, or of a function that
            returns one, as in my_project.molecules.load.
        fan_outs: for classes of nodes of one graph, largest number of neighbours of each node, of these neighbours, and
            so on, drawn anew in every epoch; batches are then of nodes.
        val_share: share of the nodes or graphs used for validation where no masks say so, in (0, 1).
        test_share: share used for testing, in [0, 1).
        split_seed: seed of the division.
        bucket: number of training batches whose graphs are sorted by size together, to reduce padding; 0 turns it off.
        batch_size: graphs, or with fan_outs nodes, per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.

    Shapes:
        features (B, N, D), edges (B, 2, E), num_nodes (B,); target (B,) for graphs, (B, N) for nodes.

    Raises:
        ValueError: a value is out of range.
        UserError: the name leads to no graphs, or they have no y.
    """

    def __init__(
        self,
        graphs: str | Sequence[Any] = "",
        fan_outs: list[int] | None = None,
        val_share: float = 0.1,
        test_share: float = 0.2,
        split_seed: int = 0,
        bucket: int = 0,
        batch_size: int = 32,
        num_workers: int = 0,
        timeout_s: float = 600.0,
    ) -> None:
        super().__init__(
            True,
            fan_outs=fan_outs,
            val_share=val_share,
            test_share=test_share,
            split_seed=split_seed,
            batch_size=batch_size,
            num_workers=num_workers,
            timeout_s=timeout_s,
            bucket=bucket,
        )
        self.source = graphs
        # a checkpoint holds plain values, and no graphs
        self.save_hyperparameters(ignore=[] if isinstance(graphs, str) else ["graphs"])

    def load(self) -> Content:
        graphs = self._graphs_of_source()
        rows = [_rows(graph, number) for number, graph in enumerate(graphs)]
        targets = [graph.y for graph in graphs]
        if not all(isinstance(y, Tensor) and not y.is_floating_point() for y in targets):
            raise UserError("--data.graphs: expected classes y, integers, in every graph")
        classes = [str(number) for number in range(int(max(int(y.max()) for y in targets)) + 1)]
        is_of_nodes = all(y.numel() == len(own.nodes) for y, own in zip(targets, rows, strict=True))
        if len(graphs) == 1 or (is_of_nodes and any(y.numel() > 1 for y in targets)):
            labels = [y.flatten().long() for y in targets]
            return Content("graphs", "node", rows, labels, self._split(graphs, labels), classes)
        if any(y.numel() != 1 for y in targets):
            raise UserError("--data.graphs: expected a y with one class, or with one for each node")
        return Content("graphs", "graph", rows, [int(y) for y in targets], self._split(graphs, []), classes)

    def _split(self, graphs: Sequence[Any], labels: Sequence[Tensor]) -> dict[str, list[int]]:
        if len(graphs) == 1 and getattr(graphs[0], "train_mask", None) is not None:
            masks = {split: getattr(graphs[0], name, None) for split, name in MASKS.items()}
            return {split: mask.nonzero()[:, 0].tolist() for split, mask in masks.items() if mask is not None}
        members = (labels[0] != UNKNOWN).nonzero()[:, 0].tolist() if len(graphs) == 1 else list(range(len(graphs)))
        shares = [1 - self.val_share - self.test_share, self.val_share, self.test_share]
        parts = split_indices(len(members), shares, self.split_seed)
        return {split: sorted(members[place] for place in part) for split, part in zip(MASKS, parts, strict=True)}

    def _graphs_of_source(self) -> list[Any]:
        source: Any = self.source
        option = "--data.graphs"
        if isinstance(source, str):
            option = f"--data.graphs {source}"
            module, _, name = source.rpartition(".")
            try:
                source = getattr(import_module(module), name)
            except (AttributeError, ImportError, ValueError) as error:
                raise UserError(f"{option}: expected the dotted name of a list or a function: {error}") from error
            source = source() if callable(source) else source
        graphs = list(source) if not hasattr(source, "edge_index") else [source]
        if not graphs or not all(getattr(graph, "edge_index", None) is not None for graph in graphs):
            raise UserError(f"{option}: expected graphs with an edge_index, got {source!r:.60}")
        return graphs


def _rows(graph: Any, number: int) -> GraphRows:
    matrix = None if graph.x is None else torch.as_tensor(graph.x).float()
    nodes = [str(node) for node in range(int(graph.num_nodes))]
    return GraphRows(f"graph {number}", nodes, {}, matrix, np.asarray(graph.edge_index.T))
