"""Batches of graphs as graph networks take them, and what they return for nodes, graphs or links."""

from typing import Literal

import torch
from torch import Tensor

Level = Literal["node", "graph", "link"]
Pooling = Literal["mean", "sum", "max"]
LEVELS = ("node", "graph", "link")
POOLINGS = ("mean", "sum", "max")


def check_options(level: str, pooling: str, dropout: float, **counts: int) -> None:
    """Checks the options that graph networks have in common.

    Args:
        level: what the network predicts.
        pooling: over the nodes of a graph.
        dropout: a probability.
        counts: numbers that are at least 1, by the names of their options.

    Raises:
        ValueError: one is out of range.
    """
    if level not in LEVELS:
        raise ValueError(f"level: expected one of {', '.join(LEVELS)}, got {level}")
    if pooling not in POOLINGS:
        raise ValueError(f"pooling: expected one of {', '.join(POOLINGS)}, got {pooling}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout: expected a probability in [0, 1), got {dropout}")
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name}: expected at least 1, got {count}")


def check_graphs(features: Tensor, edges: Tensor, num_features: int) -> None:
    """Checks the shapes of a batch of graphs.

    Args:
        features: of the nodes (B, N, D).
        edges: source and target of each edge (B, 2, E).
        num_features: that the network was built for, D.

    Raises:
        ValueError: they are others.
    """
    if features.ndim != 3 or features.shape[2] != num_features:
        raise ValueError(f"num_features: expected features (B, N, {num_features}), got {tuple(features.shape)}")
    if edges.ndim != 3 or edges.shape[1] != 2:
        raise ValueError(f"edges: expected (B, 2, E), got {tuple(edges.shape)}")


def pool_nodes(x: Tensor, num_nodes: Tensor, pooling: Pooling) -> Tensor:
    """The mean, sum or maximum over the nodes of each graph; padding does not count.

    Args:
        x: features of nodes (B, N, C).
        num_nodes: of each graph (B,), at least 1.
        pooling: which of them.

    Returns:
        (B, C).
    """
    is_node = (torch.arange(x.shape[1], device=x.device) < num_nodes[:, None]).unsqueeze(-1)  # (B, N, 1)
    if pooling == "max":
        return x.masked_fill(~is_node, -torch.inf).amax(dim=1)
    total = x.masked_fill(~is_node, 0).sum(dim=1)  # (B, C)
    return total if pooling == "sum" else total / num_nodes[:, None].clamp(min=1).to(x.dtype)
