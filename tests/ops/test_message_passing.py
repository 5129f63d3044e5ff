"""Sums over neighbours against dense matrices, with gradients, eager and as they are traced for an export."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from src.ops import message_passing
from src.ops.message_passing import Adjacency, adjacency

B, N, E, H, C = 3, 5, 9, 2, 4
each_way = pytest.mark.parametrize("traced", [False, True])


def batch(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Edges with loops, equal ones, padding, and some that name no node."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(-1, N + 1, (B, 2, E), generator=generator)
    edges[0, :, 1] = edges[0, :, 0] = torch.tensor([1, 2])
    return edges, torch.tensor([N, 3, 1])


def build(traced: bool, monkeypatch: pytest.MonkeyPatch, keeps_loops: bool = True) -> tuple[Adjacency, Tensor]:
    """The edges, and the dense matrix (M, M) of how many there are from one node to another."""
    monkeypatch.setattr(message_passing, "is_traced", lambda: traced)
    edges, num_nodes = batch()
    matrix = torch.zeros(B * N, B * N, dtype=torch.float64)
    for b, count in enumerate(num_nodes.tolist()):
        for source, target in edges[b].T.tolist():
            if 0 <= source < count and 0 <= target < count and (keeps_loops or source != target):
                matrix[b * N + target, b * N + source] += 1
    assert matrix.sum() > 5, "the test needs edges"
    return Adjacency(edges, num_nodes, N, keeps_loops), matrix


@each_way
@pytest.mark.parametrize("keeps_loops", [True, False])
def test_sums_and_degrees(traced: bool, keeps_loops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, matrix = build(traced, monkeypatch, keeps_loops)
    x = torch.randn(B * N, C, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(graph.sum(x), matrix @ x)
    torch.testing.assert_close(graph.degree.double()[:, 0], matrix.sum(dim=1))
    assert torch.autograd.gradcheck(graph.sum, x)
    assert torch.autograd.gradgradcheck(graph.sum, x)


@each_way
def test_softmax_and_weighted_sums(traced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, matrix = build(traced, monkeypatch)
    left, right, x = (
        torch.randn(B * N, *size, dtype=torch.float64, requires_grad=True) for size in ((H,), (H,), (H, C))
    )

    def attend(left: Tensor, right: Tensor, x: Tensor) -> Tensor:
        weight, own = graph.softmax(left[graph.source] * right[graph.target], left)
        return graph.weighted_sum(x, weight) + own.unsqueeze(-1) * x

    def dense(left: Tensor, right: Tensor, x: Tensor) -> Tensor:
        share = (right[:, None] * left[None]).exp() * matrix[..., None]  # (M, M, H), target by source
        total = share.sum(dim=1) + left.exp()  # (M, H)
        return torch.einsum("tsh,shc->thc", share / total[:, None], x) + (left.exp() / total).unsqueeze(-1) * x

    torch.testing.assert_close(attend(left, right, x), dense(left, right, x))
    assert torch.autograd.gradcheck(attend, (left, right, x))


@each_way
def test_large_scores_do_not_overflow(traced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, _ = build(traced, monkeypatch)
    weight, own = graph.softmax(torch.full((len(graph.source), 1), 1e4), torch.zeros(B * N, 1))
    assert weight.isfinite().all()
    has_edge = graph.degree[:, 0] > 0
    assert torch.equal(own[:, 0], (~has_edge).float())


def test_edges_that_do_not_change_are_sorted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    edges, num_nodes = batch()
    first = adjacency(edges, num_nodes, N)
    assert adjacency(edges.view_as(edges), num_nodes, N) is first
    assert adjacency(edges, num_nodes, N, keeps_loops=False) is not first
    assert adjacency(edges.clone(), num_nodes, N) is not first
    edges[0, 0, 0] = 2
    assert adjacency(edges, num_nodes, N) is not first, "it was changed in place"
    for _ in range(10):
        adjacency(edges.clone(), num_nodes, N)
    assert len(message_passing._RECENT) == message_passing.MOST_KEPT


def test_a_matrix_of_an_evaluation_serves_training() -> None:
    edges, num_nodes = batch()
    x = torch.randn(B * N, C, requires_grad=True)
    with torch.inference_mode():
        adjacency(edges, num_nodes, N).sum(x)
    adjacency(edges, num_nodes, N).sum(x).sum().backward()
    assert x.grad is not None
    with torch.inference_mode():
        inner = edges.clone()  # an inference tensor, which has no version
        torch.testing.assert_close(adjacency(inner, num_nodes, N).sum(x), adjacency(edges, num_nodes, N).sum(x))


def test_a_graph_without_edges() -> None:
    empty, num_nodes = torch.full((2, 2, 0), -1), torch.tensor([3, 3])
    x = torch.randn(6, 2)
    assert not adjacency(empty, num_nodes, 3).sum(x).any()


def gcn(layer: Any, x: Tensor, edges: Tensor, graph: Adjacency) -> tuple[Tensor, Tensor]:
    from torch_geometric.nn import GCNConv

    reference: Any = GCNConv(C, 6).double()
    reference.lin.weight, reference.bias = layer.linear.weight, layer.bias
    return reference(x, edges), layer(x, graph)


def sage(layer: Any, x: Tensor, edges: Tensor, graph: Adjacency) -> tuple[Tensor, Tensor]:
    from torch_geometric.nn import SAGEConv

    reference: Any = SAGEConv(C, 6).double()
    reference.lin_l.weight, reference.lin_l.bias = layer.neighbours.weight, layer.own.bias
    reference.lin_r.weight = layer.own.weight
    return reference(x, edges), layer(x, graph)


def gat(layer: Any, x: Tensor, edges: Tensor, graph: Adjacency) -> tuple[Tensor, Tensor]:
    from torch_geometric.nn import GATConv

    reference: Any = GATConv(C, 6, heads=H, concat=layer.joins).double()
    reference.lin.weight, reference.bias = layer.linear.weight, layer.bias
    reference.att_src = torch.nn.Parameter(layer.source[None])
    reference.att_dst = torch.nn.Parameter(layer.target[None])
    return reference(x, edges), layer(x, graph)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("compare", [gcn, sage, gat])
@pytest.mark.parametrize("joins", [True, False])
def test_layers_are_those_of_pytorch_geometric(compare: Callable[..., Any], joins: bool) -> None:
    pytest.importorskip("torch_geometric")
    from src.ops import graph_layers

    torch.manual_seed(0)
    layers = {
        gcn: lambda: graph_layers.GraphConvolution(C, 6),
        sage: lambda: graph_layers.SageConvolution(C, 6),
        gat: lambda: graph_layers.GraphAttention(C, 6, H, joins),
    }
    layer = layers[compare]().double()
    edges = torch.cat(
        [torch.randint(11, (2, 30)), torch.tensor([[3], [3]])], dim=1
    )  # node 11 is isolated, 3 has a loop
    edges = edges[:, edges[0] != edges[1]] if compare is gcn else edges  # whose reference keeps loops of edges
    x = torch.randn(12, C, dtype=torch.float64)
    graph = adjacency(edges[None], torch.tensor([12]), 12, layer.keeps_loops)
    expected, outputs = compare(layer, x, edges, graph)
    torch.testing.assert_close(outputs, expected)
