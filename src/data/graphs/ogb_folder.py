"""Graphs in the folders of the Open Graph Benchmark."""

import csv
import gzip
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from playbook import UserError
from src.data.graphs.base import Content, GraphData
from src.data.graphs.graph import UNKNOWN
from src.data.graphs.rows import GraphRows

SPLITS = {"train": "train", "val": "valid", "test": "test"}  # and their files


class OgbFolder(GraphData):
    """A data set of the Open Graph Benchmark as it is unpacked, for classes of nodes or of graphs (Hu et al. 2020).

    The folder has raw/edge.csv.gz, num-node-list.csv.gz, num-edge-list.csv.gz and node-label.csv.gz or
    graph-label.csv.gz, perhaps node-feat.csv.gz, and split/SCHEME/train.csv.gz, valid.csv.gz and test.csv.gz. The
    tables have no header, and may be unpacked. Without node-feat, the degree is the feature, one-hot. Features of edges
    are left out. With several columns of labels, the first is read.

    Args:
        root: the folder.
        scheme: folder of the split, such as time or scaffold; not needed if there is one.
        directed: whether messages go from source to target alone.
        fan_outs: for classes of nodes, largest number of neighbours of each node, of these neighbours, and so on, drawn
            anew in every epoch; batches are then of nodes. By default, a batch is the graph.
        bucket: number of training batches whose graphs are sorted by size together, to reduce padding; 0 turns it off.
        batch_size: graphs, or with fan_outs nodes, per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        on_error: what happens with edges that name a node that is not there: `stop` ends the run, `skip` leaves them
            out and counts them.
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.

    Shapes:
        features (B, N, D), edges (B, 2, E), num_nodes (B,); target (B,) for graphs, (B, N) for nodes.

    Raises:
        ValueError: a value is out of range.
        UserError: a table is missing, or has another number of rows than the others say.
    """

    def __init__(
        self,
        root: str,
        scheme: str | None = None,
        directed: bool = False,
        fan_outs: list[int] | None = None,
        bucket: int = 0,
        batch_size: int = 32,
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
    ) -> None:
        super().__init__(
            directed,
            fan_outs=fan_outs,
            batch_size=batch_size,
            num_workers=num_workers,
            on_error=on_error,
            timeout_s=timeout_s,
            bucket=bucket,
        )
        self.root = Path(root).expanduser()
        self.scheme = scheme
        self.save_hyperparameters()

    def load(self) -> Content:
        raw = self.root / "raw"
        if not raw.is_dir():
            raise UserError(f"--data.root {self.root.as_posix()}: expected a folder raw, as OGB's data sets have")
        num_nodes, num_edges = (_numbers(raw, f"num-{kind}-list")[:, 0] for kind in ("node", "edge"))
        edges = _numbers(raw, "edge", (int(num_edges.sum()), 2))
        matrix: Tensor | None = None
        if _find(raw, "node-feat") is not None:
            matrix = torch.from_numpy(_numbers(raw, "node-feat", (int(num_nodes.sum()), None), np.float32))
        if _find(raw, "edge-feat") is not None and not self.has_trained:
            self._left_out("columns", 1, "the features of edges, which nets do not read")
        graphs = _divide(edges, matrix, num_nodes, num_edges)
        level = "node" if _find(raw, "node-label") is not None else "graph"
        values = _numbers(raw, f"{level}-label", dtype=np.float64)[:, 0]
        classes, codes = np.unique(values[~np.isnan(values)], return_inverse=True)
        labels = torch.full((len(values),), UNKNOWN)
        labels[torch.from_numpy(~np.isnan(values))] = torch.from_numpy(codes)
        names = [f"{value:g}" for value in classes]
        splits = self._read_splits()
        if level == "node":
            return Content(self.root.name, "node", graphs, list(labels.split(num_nodes.tolist())), splits, names)
        known = {split: [number for number in own if labels[number] != UNKNOWN] for split, own in splits.items()}
        if num_unknown := sum(map(len, splits.values())) - sum(map(len, known.values())):
            self._left_out("graphs", num_unknown, f"{num_unknown:,} graphs without a label")
        return Content(self.root.name, "graph", graphs, labels.tolist(), known, names)

    def _read_splits(self) -> dict[str, list[int]]:
        folder = self.root / "split"
        schemes = sorted(own.name for own in folder.iterdir() if own.is_dir()) if folder.is_dir() else []
        if self.scheme is None and len(schemes) != 1:
            found = ", ".join(schemes) or "none"
            raise UserError(f"--data.scheme: expected one folder in {folder.as_posix()}, or its name; found {found}")
        chosen = folder / (self.scheme or schemes[0])
        if not chosen.is_dir():
            raise UserError(f"--data.scheme {self.scheme}: expected one of {', '.join(schemes) or 'none'}")
        return {split: _numbers(chosen, name)[:, 0].tolist() for split, name in SPLITS.items()}


def _divide(edges: np.ndarray, matrix: Tensor | None, num_nodes: np.ndarray, num_edges: np.ndarray) -> list[GraphRows]:
    """The graphs, whose rows follow each other."""
    node_ends, edge_ends = num_nodes.cumsum(), num_edges.cumsum()
    graphs = []
    for number, (size, count) in enumerate(zip(num_nodes.tolist(), num_edges.tolist(), strict=True)):
        own = None if matrix is None else matrix[node_ends[number] - size : node_ends[number]]
        names = [str(node) for node in range(size)]
        pairs = edges[edge_ends[number] - count : edge_ends[number]]
        graphs.append(GraphRows(f"graph {number}", names, {}, own, pairs))
    return graphs


def _find(folder: Path, name: str) -> Path | None:
    return next((file for end in (".csv.gz", ".csv") if (file := folder / f"{name}{end}").is_file()), None)


def _numbers(folder: Path, name: str, shape: Any = (None, None), dtype: Any = np.int64) -> np.ndarray:
    """The numbers of a table without a header (R, C).

    Raises:
        UserError: it is missing, holds anything but numbers, or has another shape.
    """
    file = _find(folder, name)
    if file is None:
        raise UserError(f"--data.root: {folder.as_posix()}: expected {name}.csv.gz, which is missing")
    place = f"--data.root: {file.as_posix()}"
    try:
        with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
            rows = [[float(field or "nan") for field in row] for row in csv.reader(lines) if row]
        numbers = np.array(rows, dtype=np.float64)
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"{place}: expected rows of numbers: {error}") from error
    if numbers.ndim != 2 or any(size not in (None, own) for size, own in zip(shape, numbers.shape, strict=True)):
        expected = " × ".join("any" if size is None else f"{size:,}" for size in shape)
        raise UserError(f"{place}: expected {expected} numbers, got {' × '.join(map(str, numbers.shape))}")
    return numbers.astype(dtype)
