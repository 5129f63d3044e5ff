"""What every net must satisfy is in test_nets.py, what graph networks have in common in test_graph_nets.py."""

from typing import Any

import torch
from torch import Tensor

from src.nets.graphs.gat import GAT
from tests.nets.graphs.graphs import random_graphs


def example(batch_size: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    return random_graphs(batch_size), {"num_classes": 3, "num_features": 4, "hidden": 4, "level": "graph"}


def test_logits_are_those_of_dense_attention() -> None:
    torch.manual_seed(0)
    net = GAT(3, 4, hidden=2, heads=2, out_heads=2).double().eval()
    layers: Any = net.layers
    inputs = random_graphs(3)
    outputs = net(**{**inputs, "features": inputs["features"].double()})
    for b, count in enumerate(inputs["num_nodes"].tolist()):
        counts = torch.eye(count, dtype=torch.float64)  # of edges from a node to another
        for source, target in inputs["edges"][b].T.tolist():
            counts[target, source] += float(0 <= source != target)
        x = inputs["features"][b, :count].double()
        for number, layer in enumerate(layers, start=1):
            x = (x @ layer.linear.weight.T).view(count, layer.heads, -1)  # (N, H, C)
            score = torch.einsum("nhc,hc->nh", x, layer.target)[:, None] + torch.einsum("nhc,hc->nh", x, layer.source)
            share = torch.nn.functional.leaky_relu(score, 0.2).exp() * counts[..., None]  # (N, N, H)
            x = torch.einsum("tsh,shc->thc", share / share.sum(dim=1, keepdim=True), x)
            x = (x.flatten(1) if number == 1 else x.mean(dim=1)) + layer.bias
            x = torch.nn.functional.elu(x) if number == 1 else x
        torch.testing.assert_close(outputs[b, :count], x)
