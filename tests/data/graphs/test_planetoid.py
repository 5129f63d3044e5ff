"""The files of Planetoid, made up and published."""

import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from playbook import UserError
from src.data.graphs.planetoid import Planetoid
from tests.conftest import PUBLISHED, needs
from tests.graphs import made_up
from tests.graphs.made_up import NUM_FEATURES, NUM_NODES, NUM_TEST, NUM_TRAIN, order_of_test

RAW = Path("data/cora/Cora/raw")


@pytest.fixture(autouse=True)
def files(workdir: Path) -> None:
    made_up.write(workdir / "data")


def set_up(**options: Any) -> Any:
    data = Planetoid("data/cora", **options)
    data.setup("fit")
    return data


def test_test_nodes_are_put_where_their_list_says() -> None:
    data = set_up(normalise=False)
    inputs, target = data.test_set[0]
    parts = made_up.parts()
    assert inputs["features"].shape == (NUM_NODES, NUM_FEATURES)
    for place, node in enumerate(order_of_test().tolist()):
        assert inputs["features"][node].tolist() == parts["tx"].toarray()[place].tolist()
        assert target[node] == parts["ty"][place].argmax()


def test_the_splits_are_the_published_ones() -> None:
    data = set_up()
    counts = {
        split: (getattr(data, f"{split}_set")[0][1] >= 0).nonzero()[:, 0].tolist() for split in ("train", "val", "test")
    }
    assert counts["train"] == list(range(NUM_TRAIN))
    assert counts["val"] == list(range(NUM_TRAIN, NUM_TRAIN + 500))
    assert counts["test"] == list(range(NUM_NODES - NUM_TEST, NUM_NODES))
    assert data.facts["class_counts"] == [5] * 7
    assert (data.facts["level"], data.facts["num_features"], len(data.facts["classes"])) == ("node", NUM_FEATURES, 7)


def test_features_of_a_node_add_up_to_one(capsys: pytest.CaptureFixture[str]) -> None:
    data = set_up()
    torch.testing.assert_close(data.train_set[0][0]["features"].sum(dim=1), torch.ones(NUM_NODES))
    assert "1 isolated nodes" in capsys.readouterr().out
    assert data.counts["isolated_nodes"] == 1


def test_all_splits_share_the_tensors_of_the_graph() -> None:
    data: Any = set_up()
    first = data.train_set[0][0]["edges"]
    assert all(own[0][0]["edges"] is first for own in (data.val_set, data.test_set, data.predict_set))


@needs("cora")
def test_cora_as_published() -> None:
    data: Any = Planetoid(str(PUBLISHED / "cora"))
    data.setup("fit")
    inputs, target = data.test_set[0]
    published = np.load(PUBLISHED / "cora/cora.npz", allow_pickle=False)
    single = inputs["edges"][:, inputs["edges"][0] < inputs["edges"][1]].numpy()
    edges = published["edges"] if len(published["edges"]) == 2 else published["edges"].T
    assert set(map(tuple, single.T.tolist())) == set(map(tuple, edges.T.tolist()))
    assert inputs["edges"].shape[1] == 2 * 5278
    assert (inputs["features"] > 0).sum() == 49_216
    assert set((target >= 0).nonzero()[:, 0].tolist()) == set(published["test_idx"].tolist())
    every = torch.stack([own[0][1] for own in (data.train_set, data.val_set, data.test_set)]).amax(dim=0)
    known = every >= 0
    assert every[known].tolist() == published["labels"][known.numpy()].tolist()


def test_neighbours_are_drawn_anew_in_each_epoch() -> None:
    data = set_up(fan_outs=[2, 3], batch_size=8)
    first, again = (list(data.train_dataloader()) for _ in range(2))
    for batch, other in zip(first, again, strict=True):
        assert all(torch.equal(batch[0][name], other[0][name]) for name in batch[0]), "the same epoch"
    assert sum(len(target) for _, target in first) == NUM_TRAIN
    for inputs, target in first:
        assert (target[:, 0] >= 0).all()
        assert (target[:, 1:] == -1).all(), "the first node alone is asked for"
        for b, count in enumerate(inputs["num_nodes"].tolist()):
            assert count <= 1 + 2 + 2 * 3
            source, goal = inputs["edges"][b][:, inputs["edges"][b, 0] >= 0]
            assert max(source.max(), goal.max()) < count
            assert (goal == 0).sum() <= 2
            assert goal.bincount().max() <= 3


def test_all_neighbours_are_those_of_the_graph() -> None:
    data = set_up(fan_outs=[1000])
    graph = data.train_set.graph
    inputs, targets = data.train_set.around(4, 2, [1000])
    sources = graph.edges[0][graph.edges[1] == 4]
    assert len(inputs["features"]) == 1 + len(sources)
    expected = graph.features[[4, *sources.tolist()]]
    assert torch.equal(inputs["features"], expected)
    assert inputs["edges"].tolist() == [list(range(1, len(sources) + 1)), [0] * len(sources)]
    assert targets.tolist() == [2] + [-1] * len(sources)


def test_links_of_validation_and_test_pass_no_messages() -> None:
    data = set_up(level="link")
    inputs, target = data.train_set[0]
    messages = set(map(tuple, inputs["edges"].T.tolist()))
    links: dict[str, set[tuple[int, ...]]] = {}
    for split in ("train", "val", "test"):
        pairs, linked = (getattr(data, f"{split}_set")[0][1][name] for name in ("pairs", "linked"))
        links[split] = set(map(tuple, pairs[:, linked == 1].T.tolist()))
        unlinked = set(map(tuple, pairs[:, linked == 0].T.tolist()))
        assert len(unlinked) == (0 if split == "train" else len(links[split]))
        assert not unlinked & (links["train"] | messages)
    assert not links["train"] & links["val"] | links["train"] & links["test"] | links["val"] & links["test"]
    for source, goal in links["val"] | links["test"]:
        assert (source, goal) not in messages
        assert (goal, source) not in messages
    assert all(pair in messages for pair in links["train"])
    assert data.val_set[0][0]["edges"] is inputs["edges"]
    assert len(target["linked"]) == len(links["train"])


def test_negatives_are_drawn_anew_in_each_epoch() -> None:
    data = set_up(level="link")
    [(_, first)], [(_, again)] = (list(data.train_dataloader()) for _ in range(2))
    assert torch.equal(first["pairs"], again["pairs"]), "the same epoch"
    source, goal = first["pairs"][0][:, first["linked"][0] == 0]
    assert len(source) == first["linked"].sum()
    assert (source < goal).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fan_outs": []}, r"fan_outs: expected numbers of at least 1, got \[\]"),
        ({"fan_outs": [0]}, r"fan_outs: expected numbers of at least 1, got \[0\]"),
        ({"level": "graph"}, "level: expected node or link, got graph"),
        ({"test_share": 1.0}, r"test_share: expected a share in \[0, 1\), got 1"),
        ({"val_share": 0.95}, "val_share: expected above 0 and below 1 - test_share 0.1, got 0.95"),
        ({"batch_size": 0}, "batch_size: expected at least 1, got 0"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Planetoid("data/cora", **options)


def damage(name: str, content: Any) -> None:
    (RAW / f"ind.cora.{name}").write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, protocol=4))


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        ((RAW / "ind.cora.ty").unlink, "expected ind.cora.ty, which is missing"),
        (lambda: damage("graph", {0: [99_999]}), "cora: edge 1: an edge names node 99999, expected 0 to 694"),
        (lambda: damage("x", b"x"), "ind.cora.x: expected a pickle of arrays"),
        (lambda: damage("graph", np.zeros(3)), "the parts of cora do not fit together"),
        (lambda: damage("allx", np.zeros((635, 3))), "the parts of cora do not fit together"),
    ],
)
def test_damaged_files(break_it: Any, message: str) -> None:
    break_it()
    with pytest.raises(UserError, match=re.escape(message)):
        set_up()


def test_which_files() -> None:
    for part in RAW.iterdir():
        os.link(part, RAW / part.name.replace("cora", "other"))
    with pytest.raises(UserError, match=r"holds cora, other; choose one with --data\.name"):
        set_up()
    with pytest.raises(UserError, match=r"--data.name corra: data/cora holds cora, other.*cora"):
        set_up(name="corra")
    assert set_up(name="Cora").facts["num_features"] == NUM_FEATURES
    with pytest.raises(UserError, match="no such folder"):
        Planetoid("nowhere").setup("fit")
    Path("empty").mkdir()
    with pytest.raises(UserError, match=r"found no ind\.\*\.graph"):
        Planetoid("empty").load()
