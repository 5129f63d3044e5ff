"""Graphs around single nodes, of some neighbours drawn at random, so that a large graph is trained on in batches."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from src.data.graphs.graph import UNKNOWN, Graph


class SeedNodes(Dataset):
    """The nodes of a graph that a training predicts, one a sample: number and class of a node.

    Args:
        graph: that they are of.
        nodes: their numbers.
        labels: class of each node of the graph (N,).
    """

    def __init__(self, graph: Graph, nodes: Sequence[int], labels: Tensor) -> None:
        self.graph = graph
        self.nodes = list(nodes)
        self.targets = labels[self.nodes].tolist()
        source, target = graph.edges.numpy()  # sorted by target
        self._sources = source
        self._first = np.searchsorted(target, np.arange(len(graph.features) + 1))

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, index: int) -> tuple[int, int]:
        return self.nodes[index], self.targets[index]

    def around(self, node: int, label: int, fan_outs: Sequence[int]) -> tuple[dict[str, Tensor], Tensor]:
        """The graph of a node and of neighbours of it, drawn without repetition from NumPy's global generator.

        Args:
            node: number of the node in the graph; 0 in the sample.
            label: its class.
            fan_outs: largest number of neighbours of the node, of each neighbour, and so on; messages from them are
                the edges (Hamilton et al. 2017).

        Returns:
            Inputs without the dimension B, and the targets of the nodes (N,), of which the first is known.
        """
        numbers, pairs, frontier, done = {node: 0}, [], [node], set()
        for fan_out in fan_outs:
            reached: list[int] = []
            for target in frontier:
                done.add(target)
                sources = self._sources[self._first[target] : self._first[target + 1]]
                if len(sources) > fan_out:
                    sources = sources[np.random.permutation(len(sources))[:fan_out]]
                for source in sources.tolist():
                    if source not in numbers:
                        numbers[source] = len(numbers)
                    pairs.append((numbers[source], numbers[target]))
                    reached.append(source)
            frontier = [source for source in dict.fromkeys(reached) if source not in done]
        features = self.graph.features[list(numbers)]  # (N, D)
        edges = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T.contiguous()  # (2, E)
        targets = torch.full((len(numbers),), UNKNOWN)
        targets[0] = label
        return {"features": features, "edges": edges, "num_nodes": torch.tensor(len(numbers))}, targets
