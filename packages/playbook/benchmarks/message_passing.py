"""A step of message passing beside the layers of PyTorch Geometric in pure Python, without its compiled extensions.

    python packages/playbook/benchmarks/message_passing.py [NODES] [EDGES] [FEATURES] [ROUNDS]

Forward and backward of one layer on a random graph, with gradients of features and weights. Outputs are compared first.
One thread; alternating, medians of CPU time, and of how many times longer the other one takes. The matrix of the graph
is sorted once, as in a training on one graph; `sorted` is the time of that, which every new batch pays.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))
warnings.simplefilter("ignore")

import torch
from torch import Tensor


def pairs(dim: int) -> dict[str, tuple[Any, Any]]:
    """Our layer and that of PyTorch Geometric, with the same weights."""
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv

    from src.ops.graph_layers import GraphAttention, GraphConvolution, SageConvolution

    gcn, sage, gat = GraphConvolution(dim, dim), SageConvolution(dim, dim), GraphAttention(dim, dim // 8, 8)
    other_gcn: Any = GCNConv(dim, dim)
    other_gcn.lin.weight = gcn.linear.weight
    other_sage: Any = SAGEConv(dim, dim)
    other_sage.lin_l.weight, other_sage.lin_l.bias = sage.neighbours.weight, sage.own.bias
    other_sage.lin_r.weight = sage.own.weight
    other_gat: Any = GATConv(dim, dim // 8, 8)
    other_gat.lin.weight = gat.linear.weight
    other_gat.att_src, other_gat.att_dst = (torch.nn.Parameter(own[None]) for own in (gat.source, gat.target))
    return {"GCN": (gcn, other_gcn), "GraphSAGE": (sage, other_sage), "GAT, 8 heads": (gat, other_gat)}


def seconds(step: Callable[[], Tensor]) -> float:
    start = time.process_time()
    step().square().mean().backward()
    return time.process_time() - start


def main(num_nodes: int = 50_000, num_edges: int = 500_000, dim: int = 64, rounds: int = 5) -> None:
    from src.ops.message_passing import Adjacency

    torch.manual_seed(0)
    torch.set_num_threads(1)
    edges = torch.randint(num_nodes, (2, num_edges))
    edges = edges[:, edges[0] != edges[1]].unique(dim=1)
    x = torch.randn(num_nodes, dim, requires_grad=True)
    start = time.process_time()
    graph = Adjacency(edges[None], torch.tensor([num_nodes]), num_nodes)
    print(f"{num_nodes:,} nodes, {edges.shape[1]:,} edges, {dim} features; sorted {time.process_time() - start:.3f} s")
    for name, (own, other) in pairs(dim).items():
        error = (own(x, graph) - other(x, edges)).abs().max().item()
        times: list[tuple[float, float]] = []
        for number in range(rounds + 1):
            pair = seconds(lambda own=own: own(x, graph)), seconds(lambda other=other: other(x, edges))
            times += [pair] if number else []  # the first one warms up
        ours, theirs = (statistics.median(column) * 1000 for column in zip(*times, strict=True))
        ratio = statistics.median(b / a for a, b in times)
        print(
            f"{name}: {ours:.0f} ms, PyTorch Geometric {theirs:.0f} ms, × {ratio:.1f}; largest difference {error:.1g}"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
