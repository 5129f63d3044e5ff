"""Folders of the Open Graph Benchmark."""

import gzip
from pathlib import Path
from typing import Any

import pytest
import torch

from playbook import UserError
from src.data.graphs.ogb_folder import OgbFolder

NODES, EDGES = [3, 2, 4, 2, 3], [2, 1, 3, 1, 2]


def write(name: str, rows: list[list[Any]]) -> None:
    file = Path("ogb", f"{name}.csv.gz")
    file.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(file, "wt") as lines:
        lines.writelines(",".join(map(str, row)) + "\n" for row in rows)


@pytest.fixture(autouse=True)
def files(workdir: Path) -> None:
    write("raw/num-node-list", [[size] for size in NODES])
    write("raw/num-edge-list", [[size] for size in EDGES])
    write("raw/edge", [[number, number + 1] for size in EDGES for number in range(size)])
    write("raw/node-feat", [[graph, node] for graph, size in enumerate(NODES) for node in range(size)])
    write("raw/graph-label", [[0], [1], [0], [1], ["nan"]])
    for split, rows in {"train": [[0], [1]], "valid": [[2]], "test": [[3], [4]]}.items():
        write(f"split/scaffold/{split}", rows)


def set_up(**options: Any) -> Any:
    data = OgbFolder("ogb", **options)
    data.setup("fit")
    return data


def test_classes_of_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    data = set_up()
    assert (data.facts["level"], data.facts["classes"], data.facts["num_features"]) == ("graph", ["0", "1"], 2)
    assert {split: getattr(data, f"{split}_set").ids for split in ("train", "val", "test")} == {
        "train": ["graph 0", "graph 1"],
        "val": ["graph 2"],
        "test": ["graph 3"],
    }
    inputs, target = data.val_set[0]
    assert target == 0
    assert inputs["features"].tolist() == [[2, node] for node in range(4)]
    assert set(map(tuple, inputs["edges"].T.tolist())) == {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)}
    assert "left out 1 graphs without a label" in capsys.readouterr().err


def test_classes_of_nodes_and_no_features() -> None:
    for name, rows in {
        "num-node-list": [[6]],
        "num-edge-list": [[4]],
        "edge": [[0, 1], [1, 2], [3, 4], [4, 5]],
    }.items():
        write(f"raw/{name}", rows)
    write("raw/node-label", [[5], [7], [5], ["nan"], [7], [5]])
    Path("ogb/raw/node-feat.csv.gz").unlink()
    write("raw/edge-feat", [[1]] * 4)
    data = set_up(scheme="scaffold", directed=True)
    assert (data.facts["level"], data.facts["classes"], data.facts["num_features"]) == ("node", ["5", "7"], 11)
    assert data.train_set[0][1].tolist() == [0, 1, -1, -1, -1, -1]
    assert data.test_set[0][1].tolist() == [-1, -1, -1, -1, 1, -1]
    assert data.counts["left_out_columns"] == 1
    torch.testing.assert_close(data.train_set[0][0]["edges"], torch.tensor([[0, 1, 3, 4], [1, 2, 4, 5]]))


def test_what_does_not_fit() -> None:
    with pytest.raises(UserError, match="nowhere: expected a folder raw"):
        OgbFolder("nowhere").setup("fit")
    with pytest.raises(UserError, match=r"--data\.scheme time: expected one of scaffold"):
        set_up(scheme="time")
    write("raw/edge", [[0, 1]])
    with pytest.raises(UserError, match=r"edge\.csv\.gz: expected 9 × 2 numbers, got 1 × 2"):
        set_up()
    write("raw/edge", [["a", 1]])
    with pytest.raises(UserError, match=r"edge\.csv\.gz: expected rows of numbers: could not convert"):
        set_up()
    Path("ogb/raw/edge.csv.gz").unlink()
    with pytest.raises(UserError, match=r"expected edge\.csv\.gz, which is missing"):
        set_up()
    Path("ogb/raw/edge.csv").write_text("0,9\n" * 9)
    with pytest.raises(UserError, match="graph 0: edge 1: an edge names node 9, expected 0 to 2"):
        set_up()
    write("split/time/train", [[0]])
    Path("ogb/raw/edge.csv").write_text("0,1\n" * 9)
    with pytest.raises(UserError, match="expected one folder in ogb/split, or its name; found scaffold, time"):
        set_up()
