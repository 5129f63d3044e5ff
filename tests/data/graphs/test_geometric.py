"""Graphs of PyTorch Geometric, where it is installed."""

from typing import Any

import pytest
import torch

from playbook import UserError
from src.data.graphs.geometric import GeometricGraphs

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
pytest.importorskip("torch_geometric")


def molecules() -> list[Any]:
    """Ten graphs of two classes."""
    from torch_geometric.data import Data

    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    return [Data(x=torch.full((3, 2), float(n)), edge_index=edges, y=torch.tensor([n % 2])) for n in range(10)]


def network(**more: Any) -> Any:
    from torch_geometric.data import Data

    edges = torch.randint(8, (2, 20), generator=torch.Generator().manual_seed(0))
    return Data(x=torch.eye(8), edge_index=edges, y=torch.tensor([0, 1, 2, 0, 1, 2, 0, 1]), **more)


def set_up(graphs: Any, **options: Any) -> Any:
    data = GeometricGraphs(graphs, **options)
    data.setup("fit")
    return data


def test_a_list_of_graphs_and_its_name() -> None:
    for source in (molecules(), "tests.data.graphs.test_geometric.molecules"):
        data = set_up(source)
        assert (data.facts["level"], data.facts["num_features"], data.facts["classes"]) == ("graph", 2, ["0", "1"])
        assert [len(own) for own in (data.train_set, data.val_set, data.test_set)] == [7, 1, 2]
        for inputs, target in data.train_set:
            assert inputs["features"][0, 0] % 2 == target
            assert set(map(tuple, inputs["edges"].T.tolist())) == {(0, 1), (1, 0), (1, 2), (2, 1)}
        assert ("graphs" in data.hparams) == isinstance(source, str)


def test_masks_are_the_splits() -> None:
    masks = {name: torch.arange(8) % 4 == n for n, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    graph = network(**masks)
    data = set_up(graph, fan_outs=[3])
    assert data.train_set.nodes == [0, 4]
    assert data.val_set[0][1].tolist() == [-1, 1, -1, -1, -1, 2, -1, -1]
    assert data.test_set[0][1].tolist() == [-1, -1, 2, -1, -1, -1, 0, -1]
    listed = set(map(tuple, graph.edge_index.T.tolist()))
    assert set(map(tuple, data.val_set[0][0]["edges"].T.tolist())) == listed


def test_nodes_without_masks_are_split_at_random() -> None:
    data = set_up([network()], val_share=0.25, test_share=0.25)
    targets = [own[0][1] for own in (data.train_set, data.val_set, data.test_set)]
    assert [int((target >= 0).sum()) for target in targets] == [4, 2, 2]
    assert torch.stack(targets).amax(dim=0).tolist() == network().y.tolist()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", r"--data\.graphs : expected the dotted name of a list or a function"),
        ("tests.nothing.here", r"--data\.graphs tests\.nothing\.here: expected the dotted name"),
        ([], "expected graphs with an edge_index, got"),
        ([3], "expected graphs with an edge_index, got"),
    ],
)
def test_what_are_no_graphs(source: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        set_up(source)


def test_targets_that_are_no_classes() -> None:
    graphs = molecules()
    graphs[0].y = torch.tensor([0.5])
    with pytest.raises(UserError, match="expected classes y, integers, in every graph"):
        set_up(graphs)
    graphs[0].y = torch.tensor([0, 1])
    with pytest.raises(UserError, match="expected a y with one class, or with one for each node"):
        set_up(graphs)
