"""Random graphs as inputs of graph networks."""

import torch
from torch import Tensor

SIZES = (5, 3, 6, 1)  # nodes of the graphs of a batch, in turn


def random_graphs(batch_size: int, num_features: int = 4, directed: bool = True) -> dict[str, Tensor]:
    """Graphs of several sizes with loops, equal edges, isolated nodes and padding; drawn from the global generator."""
    num_nodes = torch.tensor([SIZES[b % len(SIZES)] for b in range(batch_size)])
    features, edges = torch.randn(batch_size, 7, num_features), torch.full((batch_size, 2, 14), -1)
    for b, count in enumerate(num_nodes.tolist()):
        features[b, count:] = 0
        drawn = torch.randint(max(1, count - 1), (2, 6))  # no edge of the last node, unless it is alone
        drawn = torch.cat([drawn, drawn[:, :1]], dim=1)  # the first one twice
        edges[b, :, : drawn.shape[1]] = drawn
        if not directed:
            edges[b, :, drawn.shape[1] :] = drawn.flip(0)
    return {"features": features, "edges": edges, "num_nodes": num_nodes}
