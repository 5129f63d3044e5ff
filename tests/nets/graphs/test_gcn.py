"""What every net must satisfy is in test_nets.py, what graph networks have in common in test_graph_nets.py."""

from typing import Any

import pytest
import torch
from torch import Tensor

from src.nets.graphs.gcn import GCN
from tests.nets.graphs.graphs import random_graphs


def example(batch_size: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    return random_graphs(batch_size), {"num_classes": 3, "num_features": 4, "hidden": 4, "level": "graph"}


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_logits_are_those_of_the_dense_formula(depth: int) -> None:
    torch.manual_seed(0)
    net = GCN(3, 4, depth=depth).double().eval()
    layers: Any = net.layers
    inputs = random_graphs(3)
    outputs = net(**{**inputs, "features": inputs["features"].double()})
    for b, count in enumerate(inputs["num_nodes"].tolist()):
        matrix = torch.eye(count, dtype=torch.float64)
        for source, target in inputs["edges"][b].T.tolist():
            matrix[target, source] += float(0 <= source != target)
        scale = matrix.sum(dim=1).rsqrt()
        x = inputs["features"][b, :count].double()
        for number, layer in enumerate(layers, start=1):
            x = scale[:, None] * (matrix @ (scale[:, None] * (x @ layer.linear.weight.T))) + layer.bias
            x = x.relu() if number < depth else x
        torch.testing.assert_close(outputs[b, :count], x)
