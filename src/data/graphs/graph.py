"""Graphs in memory: clean edges, and batches of several graphs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

UNKNOWN = -1  # target of a node without a label, or that does not count
PADDING = -1  # in the place of source and target


class Graph(NamedTuple):
    """A graph.

    Args:
        name: in tables of predictions.
        nodes: names of its N nodes.
        features: of the nodes (N, D).
        edges: source and target of each edge (2, E).
    """

    name: str
    nodes: Sequence[str]
    features: Tensor
    edges: Tensor

    @property
    def inputs(self) -> dict[str, Tensor]:
        """What a net takes, without the dimension B: features (N, D), edges (2, E) and num_nodes ()."""
        return {"features": self.features, "edges": self.edges, "num_nodes": torch.tensor(len(self.features))}


class CleanEdges(NamedTuple):
    """Edges as nets take them.

    Args:
        edges: source and target (2, E), each pair once, sorted; both directions if the graph is undirected.
        num_equal: edges that were left out as there is an equal one of the same direction.
        num_loops: edges from a node to itself, which are kept.
        num_isolated: nodes without an edge to or from another node.
    """

    edges: Tensor
    num_equal: int
    num_loops: int
    num_isolated: int


def clean_edges(pairs: np.ndarray, num_nodes: int, directed: bool) -> CleanEdges:
    """Leaves out equal edges, and adds the other direction to those of an undirected graph.

    Args:
        pairs: source and target of each edge (E, 2), from 0 to num_nodes - 1.
        num_nodes: number of nodes N.
        directed: whether an edge has one direction. If not, a b and b a are equal.
    """
    pairs = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    ordered = pairs if directed else np.sort(pairs, axis=1)
    single = np.unique(ordered, axis=0) if len(pairs) else pairs
    is_loop = single[:, 0] == single[:, 1]
    both = single if directed else np.concatenate([single, single[~is_loop][:, ::-1]])
    both = both[np.lexsort((both[:, 0], both[:, 1]))]  # by target, then by source
    linked = np.unique(single[~is_loop])
    edges = torch.from_numpy(np.ascontiguousarray(both.T))  # (2, E)
    num_different = len(single if directed or not len(pairs) else np.unique(pairs, axis=0))
    return CleanEdges(edges, len(pairs) - num_different, int(is_loop.sum()), num_nodes - len(linked))


def collate_graphs(samples: Sequence[tuple[dict[str, Tensor], Any]]) -> tuple[dict[str, Tensor], Any]:
    """A batch of graphs, padded to the largest of them.

    Args:
        samples: inputs and target of each graph: a class, the targets of its nodes (N,), or a dict of values (N,) or
            (N, …) of nodes, of lists, and of `pairs` (2, P) and `linked` (P,), which are padded with -1.

    Returns:
        features (B, N, D), edges (B, 2, E), num_nodes (B,), and the targets (B,), (B, N), or a dict of such.
    """
    inputs, targets = zip(*samples, strict=True)
    batch = {
        "features": _stacked([graph["features"] for graph in inputs], dim=0, value=0),
        "edges": _stacked([graph["edges"] for graph in inputs], dim=1, value=PADDING),
        "num_nodes": _stacked([graph["num_nodes"] for graph in inputs]),
    }
    return batch, _stacked_targets(targets)


def _stacked_targets(targets: Sequence[Any]) -> Any:
    first = targets[0]
    if isinstance(first, dict):
        columns = {name: [target[name] for target in targets] for name in first}
        return {
            name: values if isinstance(values[0], list) else _stacked(values, int(name == "pairs"), UNKNOWN)
            for name, values in columns.items()
        }
    if isinstance(first, Tensor) and first.ndim:
        return _stacked(list(targets), 0, UNKNOWN)
    return torch.as_tensor(targets)


def _stacked(values: Sequence[Tensor], dim: int = 0, value: int = 0) -> Tensor:
    """Tensors padded along a dimension and stacked; a single one is not copied."""
    if len(values) == 1:
        return values[0].unsqueeze(0)
    if values[0].ndim:
        size = max(own.shape[dim] for own in values)
        after = values[0].ndim - 1 - dim  # dimensions behind it; `pad` counts from the last one
        values = [pad(own, [0, 0] * after + [0, size - own.shape[dim]], value=value) for own in values]
    return torch.stack(list(values))
