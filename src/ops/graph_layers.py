"""Layers of graph networks: GCN, GAT and GraphSAGE, from features of nodes (M, D) to (M, C)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from src.ops.message_passing import Adjacency


class GraphConvolution(nn.Module):
    """D^-1/2 (A + I) D^-1/2 X W + b, with the degrees D of A + I (Kipf & Welling 2017).

    Args:
        in_features: features of a node, D.
        out_features: features of a node afterwards, C.
    """

    keeps_loops = False  # every node has exactly one

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_features))
        nn.init.xavier_uniform_(self.linear.weight)  # Glorot & Bengio 2010, as in the paper

    def forward(self, x: Tensor, edges: Adjacency) -> Tensor:
        scale = (edges.degree + 1).rsqrt()  # (M, 1)
        x = self.linear(x) * scale.to(x.dtype)  # (M, C)
        return (edges.sum(x) + x) * scale.to(x.dtype) + self.bias


class GraphAttention(nn.Module):
    """Attention of each node over its neighbours and itself, with H heads (Veličković et al. 2018).

    Args:
        in_features: features of a node, D.
        out_features: features of a node afterwards for each head, C.
        heads: number of heads H.
        joins: whether the heads' outputs are joined, to H C features, or averaged.
        drop: probability of dropping the attention to a neighbour in training, in [0, 1).
    """

    keeps_loops = False  # every node attends to itself once

    def __init__(self, in_features: int, out_features: int, heads: int, joins: bool = True, drop: float = 0.0) -> None:
        super().__init__()
        self.heads, self.joins = heads, joins
        self.dropout = nn.Dropout(drop)
        self.linear = nn.Linear(in_features, heads * out_features, bias=False)
        self.source = nn.Parameter(torch.empty(heads, out_features))
        self.target = nn.Parameter(torch.empty(heads, out_features))
        self.bias = nn.Parameter(torch.zeros(heads * out_features if joins else out_features))
        for weight in (self.linear.weight, self.source, self.target):  # Glorot & Bengio 2010, as in the paper
            nn.init.xavier_uniform_(weight)

    def forward(self, x: Tensor, edges: Adjacency) -> Tensor:
        x = self.linear(x).unflatten(1, (self.heads, -1))  # (M, H, C)
        kind = torch.promote_types(x.dtype, torch.float32)
        source, target = ((x * weight).sum(dim=-1).to(kind) for weight in (self.source, self.target))  # (M, H)
        score = leaky_relu(edges.to_edges(source, "source") + edges.to_edges(target, "target"), 0.2)  # (E, H)
        weight, own = edges.softmax(score, leaky_relu(source + target, 0.2))
        weight, own = self.dropout(weight), self.dropout(own)
        x = edges.weighted_sum(x, weight.to(x.dtype)) + x * own.to(x.dtype).unsqueeze(-1)  # (M, H, C)
        return (x.flatten(1) if self.joins else x.mean(dim=1)) + self.bias  # (M, H C) or (M, C)


class SageConvolution(nn.Module):
    """W x + V m + b, with the mean m of the neighbours' features, 0 without one (Hamilton et al. 2017).

    Args:
        in_features: features of a node, D.
        out_features: features of a node afterwards, C.
    """

    keeps_loops = True  # a node may be its own neighbour

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.own = nn.Linear(in_features, out_features)
        self.neighbours = nn.Linear(in_features, out_features, bias=False)
        for layer in (self.own, self.neighbours):  # Glorot & Bengio 2010
            nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(self.own.bias)

    def forward(self, x: Tensor, edges: Adjacency) -> Tensor:
        degree = edges.degree.clamp(min=1)  # (M, 1)
        if self.own.out_features < self.own.in_features:  # the mean of fewer features costs less
            return self.own(x) + edges.sum(self.neighbours(x)) / degree.to(x.dtype)
        return self.own(x) + self.neighbours(edges.sum(x) / degree.to(x.dtype))
