"""Data sets of whole graphs, for the classes of graphs, of nodes, and for links."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from src.data.graphs.graph import UNKNOWN, Graph


class GraphSet(Dataset):
    """Graphs with their classes.

    Args:
        graphs: of a split.
        labels: class of each graph.
    """

    def __init__(self, graphs: Sequence[Graph], labels: Sequence[int]) -> None:
        self.graphs = list(graphs)
        self.places = self.graphs  # of which pictures are drawn
        self.targets = list(labels)
        self.lengths = [len(graph.features) for graph in graphs]
        self.ids = [graph.name for graph in graphs]

    def __len__(self) -> int:
        return len(self.graphs)

    def __getitem__(self, index: int) -> tuple[dict[str, Tensor], Any]:
        return self.graphs[index].inputs, self.targets[index]


class NodeSet(Dataset):
    """Graphs with the classes of some of their nodes.

    Args:
        graphs: whose nodes are classified.
        targets: class of each node (N,), -1 where it does not count.
        is_prediction: whether a sample has the names of the nodes, and which are asked for.
    """

    def __init__(self, graphs: Sequence[Graph], targets: Sequence[Tensor], is_prediction: bool = False) -> None:
        self.graphs = list(graphs)
        self.inputs = [graph.inputs for graph in graphs]  # the same tensors in every epoch
        self.node_targets = list(targets)
        self.lengths = [len(graph.features) for graph in graphs]
        self.ids = [graph.name for graph in graphs]
        self.is_prediction = is_prediction

    def __len__(self) -> int:
        return len(self.graphs)

    def __getitem__(self, index: int) -> tuple[dict[str, Tensor], Any]:
        target = self.node_targets[index]
        if self.is_prediction:
            return self.inputs[index], asked_nodes(self.graphs[index].nodes, target != UNKNOWN, target)
        return self.inputs[index], target

    def divided(self, num_parts: int) -> "NodeSet":
        """Each graph as often, with the targets of a part of its nodes."""
        graphs = [graph for graph in self.graphs for _ in range(num_parts)]
        targets = []
        for target in self.node_targets:
            for part in (target != UNKNOWN).nonzero()[:, 0].tensor_split(num_parts):
                own = torch.full_like(target, UNKNOWN)
                own[part] = target[part]
                targets.append(own)
        divided = NodeSet(graphs, targets, self.is_prediction)
        divided.inputs = [inputs for inputs in self.inputs for _ in range(num_parts)]
        return divided


class LinkSet(Dataset):
    """Graphs with pairs of nodes that are linked, or not.

    Args:
        graphs: with the edges that messages pass.
        pairs: source and target of each pair (2, P).
        linked: 1 where there is an edge, 0 where there is none (P,).
        is_prediction: whether a sample has the names of the nodes.
    """

    def __init__(
        self, graphs: Sequence[Graph], pairs: Sequence[Tensor], linked: Sequence[Tensor], is_prediction: bool = False
    ) -> None:
        self.graphs, self.pairs, self.linked = list(graphs), list(pairs), list(linked)
        self.inputs = [graph.inputs for graph in graphs]
        self.lengths = [len(graph.features) for graph in graphs]
        self.ids = [graph.name for graph in graphs]
        self.is_prediction = is_prediction

    def __len__(self) -> int:
        return len(self.graphs)

    def __getitem__(self, index: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
        target: dict[str, Any] = {"pairs": self.pairs[index], "linked": self.linked[index]}
        names = {"names": list(self.graphs[index].nodes)} if self.is_prediction else {}
        return self.inputs[index], target | names

    def divided(self, num_parts: int) -> "LinkSet":
        """Each graph as often, with a part of its pairs."""
        graphs = [graph for graph in self.graphs for _ in range(num_parts)]
        pairs = [part for own in self.pairs for part in own.tensor_split(num_parts, dim=1)]
        linked = [part for own in self.linked for part in own.tensor_split(num_parts)]
        divided = LinkSet(graphs, pairs, linked, self.is_prediction)
        divided.inputs = [inputs for inputs in self.inputs for _ in range(num_parts)]
        return divided


def asked_nodes(names: Sequence[str], asked: Tensor, target: Tensor | None = None) -> dict[str, Any]:
    """The target of a sample whose nodes are predicted: their names, which are asked for, and the known classes."""
    target = torch.full((len(names),), UNKNOWN) if target is None else target
    return {"names": list(names), "asked": asked.long(), "target": target}
