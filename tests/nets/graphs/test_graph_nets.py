"""What GCN, GAT and GraphSAGE have in common; in test_nets.py is what every net must satisfy."""

from typing import Any

import pytest
import torch
from torch import Tensor

from src.nets.graphs.gat import GAT
from src.nets.graphs.gcn import GCN
from src.nets.graphs.graphsage import GraphSAGE
from tests.nets.graphs.graphs import random_graphs

each_net = pytest.mark.parametrize("net_class", [GCN, GAT, GraphSAGE])
each_level = pytest.mark.parametrize("level", ["node", "graph", "link"])


def build(net_class: Any, **options: Any) -> Any:
    torch.manual_seed(0)
    return net_class(**{"num_classes": 3, "num_features": 4, **options}).double().eval()


def doubled(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {**inputs, "features": inputs["features"].double()}


@each_net
@each_level
def test_padding_changes_nothing(net_class: Any, level: str) -> None:
    net, inputs = build(net_class, level=level), doubled(random_graphs(4))
    outputs = net(**inputs)
    for b, count in enumerate(inputs["num_nodes"].tolist()):
        own = inputs["edges"][b]
        own = own[:, own[0] >= 0]
        alone = net(inputs["features"][b : b + 1, :count], own[None], inputs["num_nodes"][b : b + 1])[0]
        torch.testing.assert_close(outputs[b] if level == "graph" else outputs[b, :count], alone)


@each_net
@each_level
def test_the_order_of_nodes_and_edges_does_not_matter(net_class: Any, level: str) -> None:
    net = build(net_class, level=level, pooling="max")
    features, edges = torch.randn(1, 5, 4).double(), torch.randint(5, (1, 2, 9))
    order = torch.tensor([3, 0, 4, 1, 2])
    place = order.argsort()
    count = torch.tensor([5])
    moved = net(features[:, order], place[edges][:, :, torch.randperm(9)], count)
    outputs = net(features, edges, count)
    torch.testing.assert_close(moved, outputs if level == "graph" else outputs[:, order])


@each_net
def test_messages_go_from_source_to_target(net_class: Any) -> None:
    net, features = build(net_class, depth=1), torch.randn(1, 3, 4).double()
    edges, count = torch.tensor([[[0], [1]]]), torch.tensor([3])
    changed = features.clone()
    changed[0, 0] += 1
    before, after = net(features, edges, count)[0], net(changed, edges, count)[0]
    assert not torch.allclose(before[1], after[1]), "the target knows of its source"
    torch.testing.assert_close(before[2], after[2])
    changed = features.clone()
    changed[0, 1] += 1
    torch.testing.assert_close(net(changed, edges, count)[0, 0], before[0])  # the source knows nothing of its target


@each_net
def test_a_loop_counts_once_for_nets_that_add_one(net_class: Any) -> None:
    net, features, count = build(net_class), torch.randn(1, 2, 4).double(), torch.tensor([2])
    edges = torch.tensor([[[0, 1], [1, 0]]])
    looped = torch.cat([edges, torch.zeros(1, 2, 1, dtype=torch.int64)], dim=2)
    same = torch.allclose(net(features, edges, count), net(features, looped, count))
    assert same == (net_class is not GraphSAGE), "in GraphSAGE a node is its own neighbour"


@each_net
def test_depth_is_how_far_a_node_sees(net_class: Any) -> None:
    chain = torch.tensor([[[0, 1, 2], [1, 2, 3]]])
    features, count = torch.randn(1, 4, 4).double(), torch.tensor([4])
    changed = features.clone()
    changed[0, 0] += 1
    for depth in (1, 2, 3):
        net = build(net_class, depth=depth)
        moved = (net(features, chain, count) - net(changed, chain, count))[0].abs().amax(dim=1) > 1e-9
        assert moved.tolist() == [node <= depth for node in range(4)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@each_net
def test_half_precision_is_close(net_class: Any, dtype: torch.dtype) -> None:
    net, inputs = build(net_class), doubled(random_graphs(4))
    expected = net(**inputs)
    halved = net.to(dtype)(**{**inputs, "features": inputs["features"].to(dtype)})
    assert halved.dtype == dtype
    torch.testing.assert_close(halved.double(), expected, rtol=0.1, atol=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 0}, "num_classes: expected at least 1, got 0"),
        ({"depth": 0}, "depth: expected at least 1, got 0"),
        ({"hidden": 0}, "hidden: expected at least 1, got 0"),
        ({"dropout": 1.0}, "dropout: expected a probability"),
        ({"level": "edge"}, "level: expected one of node, graph, link, got edge"),
        ({"pooling": "median"}, "pooling: expected one of mean, sum, max, got median"),
    ],
)
@each_net
def test_options_out_of_range(net_class: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        net_class(**options)


def test_attention_dropout_is_a_probability() -> None:
    with pytest.raises(ValueError, match=r"attention_dropout: expected a probability in \[0, 1\), got 1"):
        GAT(attention_dropout=1)


@each_net
def test_features_of_another_width(net_class: Any) -> None:
    inputs = random_graphs(2, num_features=5)
    with pytest.raises(ValueError, match=r"num_features: expected features \(B, N, 4\), got \(2, 7, 5\)"):
        net_class(num_features=4)(**inputs)
    with pytest.raises(ValueError, match=r"edges: expected \(B, 2, E\), got \(2, 14\)"):
        net_class(num_features=5)(**{**inputs, "edges": inputs["edges"][:, 0]})
