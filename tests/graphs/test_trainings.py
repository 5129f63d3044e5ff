"""Graphs: exact resume, batches that do not fit into memory, and two processes."""

import sys
from pathlib import Path

import pytest

from playbook.testing.command import Cli
from tests.graphs import made_up
from tests.trainings import assert_resumes_exactly, assert_same_in_halves, assert_same_in_two_processes

SHORT = ("--seed_everything", "1", "--trainer.max_epochs", "2")
CORA = ("--data", "Planetoid", "--data.root", "data/cora", *SHORT)
NODES = (*CORA, "--model", "NodeClassification", "--data.fan_outs", "[3,2]", "--data.batch_size", "10")  # 4 steps
TREES = ("--data", "ColouredTrees", "--data.bucket", "2", "--data.batch_size", "200", *SHORT)  # 3 steps
LINKS = ("--data", "GraphFiles", "--data.root", "my", "--data.level", "link", "--data.val_share", "0.2", *SHORT)
RUNS = {
    "sampled": (*NODES, "--model.net", "GraphSAGE", "--model.net.hidden", "8"),
    "attention": (*NODES, "--model.net", "GAT", "--model.net.attention_dropout", "0"),
    "trees": (*TREES, "--model", "Classification", "--model.net", "GCN"),
    "links": (*LINKS, "--model", "LinkPrediction", "--model.net", "GCN", "--data.batch_size", "4"),  # 3 steps
}
STEPS = {"sampled": [3, 5, 8], "attention": [2, 7], "trees": [2, 5, 6], "links": [2, 5, 6]}
WHOLE = (*CORA, "--model", "NodeClassification", "--model.net", "GCN")
METRICS = {
    "sampled": ("train/loss", "val/loss", "val/accuracy", "test/loss", "test/accuracy"),
    "trees": ("train/loss", "val/loss", "test/loss", "test/accuracy"),
    "whole": ("train/loss", "train/accuracy", "val/loss", "val/accuracy", "test/loss", "test/accuracy"),
    "links": ("train/loss", "val/loss", "val/auroc", "test/auroc", "test/hits@20"),
}


@pytest.fixture(autouse=True)
def files(workdir: Path) -> None:
    made_up.write(workdir / "data")
    (workdir / "my").mkdir()
    edges = [f"g{g},{n},{(n * n + g) % 14}" for g in range(12) for n in range(15)]
    (workdir / "my/edges.csv").write_text("\n".join(["graph,source,target", *edges]))


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_resumes_exactly(cli: Cli, name: str) -> None:
    assert_resumes_exactly(cli, STEPS[name], *RUNS[name])


@pytest.mark.slow
def test_a_training_on_the_whole_graph_resumes_exactly(cli: Cli) -> None:
    assert_resumes_exactly(cli, [2, 4], *WHOLE, "--trainer.max_epochs", "4")


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_batches_that_do_not_fit_into_memory(cli: Cli, name: str) -> None:
    assert_same_in_halves(cli, *RUNS[name], "--model.net.dropout", "0")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts processes as torchrun does")
@pytest.mark.parametrize("name", METRICS)
def test_two_processes(workdir: Path, name: str) -> None:
    size = {"sampled": 10, "trees": 200, "links": 4, "whole": 4}[name]
    args = WHOLE if name == "whole" else RUNS[name]
    assert_same_in_two_processes(workdir, size, METRICS[name], *args, "--model.net.dropout", "0")
