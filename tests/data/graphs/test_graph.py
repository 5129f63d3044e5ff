"""Clean edges, and batches of graphs."""

import numpy as np
import pytest
import torch

from src.data.graphs.graph import Graph, clean_edges, collate_graphs

LISTED = np.array([[0, 1], [1, 0], [0, 1], [2, 2], [3, 1]])  # an equal edge, both directions of one, and a loop


def test_an_undirected_graph_has_both_directions_once() -> None:
    cleaned = clean_edges(LISTED, num_nodes=6, directed=False)
    assert {tuple(edge) for edge in cleaned.edges.T.tolist()} == {(0, 1), (1, 0), (2, 2), (1, 3), (3, 1)}
    assert cleaned.edges.shape == (2, 5)
    assert (cleaned.num_equal, cleaned.num_loops) == (1, 1)
    assert cleaned.num_isolated == 3, "2, which has a loop alone, 4 and 5"


def test_a_directed_graph_keeps_its_directions() -> None:
    cleaned = clean_edges(LISTED, num_nodes=6, directed=True)
    assert {tuple(edge) for edge in cleaned.edges.T.tolist()} == {(0, 1), (1, 0), (2, 2), (3, 1)}
    assert (cleaned.num_equal, cleaned.num_loops, cleaned.num_isolated) == (1, 1, 3)


@pytest.mark.parametrize("directed", [True, False])
def test_edges_are_sorted_by_target(directed: bool) -> None:
    edges = clean_edges(np.random.default_rng(0).integers(9, size=(40, 2)), 9, directed).edges
    assert torch.equal(edges[1], edges[1].sort().values)


def test_a_graph_without_edges() -> None:
    cleaned = clean_edges(np.empty((0, 2)), num_nodes=2, directed=False)
    assert cleaned.edges.shape == (2, 0)
    assert cleaned[1:] == (0, 0, 2)


def graph(size: int, edges: list[tuple[int, int]]) -> Graph:
    nodes = [str(node) for node in range(size)]
    return Graph("g", nodes, torch.ones(size, 2), torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T)


def test_batches_are_padded() -> None:
    small, large = graph(1, []), graph(3, [(0, 1), (1, 2)])
    inputs, target = collate_graphs([(small.inputs, torch.tensor([5])), (large.inputs, torch.tensor([0, -1, 1]))])
    assert inputs["num_nodes"].tolist() == [1, 3]
    assert inputs["features"].tolist() == [[[1, 1], [0, 0], [0, 0]], [[1, 1]] * 3]
    assert inputs["edges"].tolist() == [[[-1, -1], [-1, -1]], [[0, 1], [1, 2]]]
    assert target.tolist() == [[5, -1, -1], [0, -1, 1]]


def test_classes_of_graphs_and_dicts() -> None:
    samples = [graph(1, []).inputs, graph(2, []).inputs]
    assert collate_graphs([(sample, label) for sample, label in zip(samples, [1, 0], strict=True)])[1].tolist() == [
        1,
        0,
    ]
    targets = [
        {"pairs": torch.tensor([[0], [0]]), "linked": torch.tensor([1]), "names": ["a"]},
        {"pairs": torch.tensor([[0, 1], [1, 0]]), "linked": torch.tensor([1, 0]), "names": ["a", "b"]},
    ]
    target = collate_graphs(list(zip(samples, targets, strict=True)))[1]
    assert target["pairs"].tolist() == [[[0, -1], [0, -1]], [[0, 1], [1, 0]]]
    assert target["linked"].tolist() == [[1, -1], [1, 0]]
    assert target["names"] == [["a"], ["a", "b"]]


def test_a_single_graph_is_not_copied() -> None:
    inputs = graph(3, [(0, 1)]).inputs
    batch, _ = collate_graphs([(inputs, torch.zeros(3))])
    assert batch["edges"].data_ptr() == inputs["edges"].data_ptr()
    assert batch["features"].data_ptr() == inputs["features"].data_ptr()
