"""Graphs of several processes, which divide the targets."""

import torch

from src.data.graphs.graph import Graph
from src.data.graphs.sets import LinkSet, NodeSet


def graph() -> Graph:
    return Graph("g", list("abcde"), torch.eye(5), torch.tensor([[0, 1], [1, 0]]))


def test_every_known_node_is_in_one_part() -> None:
    whole = NodeSet([graph()], [torch.tensor([2, -1, 0, 1, 1])], is_prediction=True)
    parts = whole.divided(3)
    targets = torch.stack([parts[number][1]["target"] for number in range(3)])
    assert targets.amax(dim=0).tolist() == [2, -1, 0, 1, 1]
    assert (targets >= 0).sum(dim=0).tolist() == [1, 0, 1, 1, 1]
    assert (targets >= 0).sum(dim=1).tolist() == [2, 1, 1]
    assert all(parts[number][0] is whole[0][0] for number in range(3))
    assert parts.ids == ["g"] * 3


def test_every_pair_is_in_one_part() -> None:
    pairs, linked = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]]), torch.tensor([1, 0, 1, 0, 1])
    parts = LinkSet([graph()], [pairs], [linked], is_prediction=True).divided(2)
    targets = [parts[number][1] for number in range(2)]
    assert torch.equal(torch.cat([target["pairs"] for target in targets], dim=1), pairs)
    assert torch.equal(torch.cat([target["linked"] for target in targets]), linked)
    assert targets[1]["names"] == list("abcde")
    assert parts[0][0] is parts[1][0]
