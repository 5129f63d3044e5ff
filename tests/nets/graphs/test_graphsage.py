"""What every net must satisfy is in test_nets.py, what graph networks have in common in test_graph_nets.py."""

from typing import Any

import pytest
import torch
from torch import Tensor

from src.nets.graphs.graphsage import GraphSAGE
from tests.nets.graphs.graphs import random_graphs


def example(batch_size: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    return random_graphs(batch_size), {"num_classes": 3, "num_features": 4, "hidden": 4, "level": "graph"}


@pytest.mark.parametrize("hidden", [2, 9])  # fewer features than the input, and more
def test_outputs_are_those_of_the_dense_formula(hidden: int) -> None:
    torch.manual_seed(0)
    net = GraphSAGE(3, 4, hidden=hidden, level="link").double().eval()
    layers: Any = net.layers
    inputs = random_graphs(3)
    outputs = net(**{**inputs, "features": inputs["features"].double()})
    for b, count in enumerate(inputs["num_nodes"].tolist()):
        matrix = torch.zeros(count, count, dtype=torch.float64)
        for source, target in inputs["edges"][b].T.tolist():
            if source >= 0:
                matrix[target, source] += 1
        matrix = matrix / matrix.sum(dim=1, keepdim=True).clamp(min=1)
        x = inputs["features"][b, :count].double()
        for number, layer in enumerate(layers, start=1):
            x = x @ layer.own.weight.T + layer.own.bias + matrix @ x @ layer.neighbours.weight.T
            x = x.relu() if number < len(layers) else x
        torch.testing.assert_close(outputs[b, :count], x)
