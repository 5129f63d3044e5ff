"""Tables: exact resume, batches that do not fit into memory, and two processes."""

import sys
from pathlib import Path

import pytest

from playbook.testing.command import Cli
from tests.tables import made_up
from tests.trainings import assert_resumes_exactly, assert_same_in_halves, assert_same_in_two_processes

SHORT = ("--trainer.max_epochs", "2", "--data.batch_size", "40", "--seed_everything", "1")
WINE = ("--data", "ScikitTable", "--data.name", "wine", "--model", "Classification", *SHORT)  # 124 training rows
DIABETES = ("--data", "ScikitTable", "--data.name", "diabetes", "--model", "Regression", *SHORT)  # 308
HOUSES = ("--data", "Table", "--data.root", "data/california_housing/housing.csv", *SHORT)  # 140
LEVELS = ("--model.loss", "quantile", "--model.quantiles", "[0.1,0.5,0.9]", "--model.net.num_classes", "3")
MLP = ("--model.net", "TabularMLP", "--model.net.width", "8")
OWN_ROWS = ("--data.members", "4", "--model.net", "TabM", "--model.net.width", "8")
FT = ("--model.net", "FTTransformer", "--model.net.dim", "8", "--model.net.depth", "1")
BALANCED = ("--data.target", "ocean_proximity", "--data.balanced", "true", "--model", "Classification")
RUNS = {
    "mlp": (*HOUSES, *BALANCED, *MLP),
    "tabm": (*WINE, *OWN_ROWS, "--model.class_weights", "auto"),
    "ft": (*DIABETES, *FT),
    "quantiles": (*DIABETES, *OWN_ROWS, *LEVELS, "--model.net.average", "values"),
}
STEPS = {"mlp": [2, 5, 6], "tabm": [3, 5, 7], "ft": [3, 9, 12], "quantiles": [4, 11]}  # of 8, and of 16
UNDROPPED = ("--model.net.dropout", "0", "--model.net.category_dropout", "0")
METRICS = {
    "mlp": ("train/loss", "val/loss", "test/loss", "test/accuracy"),
    "tabm": ("train/loss", "val/loss", "test/loss", "test/accuracy"),
    "ft": ("train/loss", "val/rmse", "test/rmse", "test/mae", "test/r2"),
    "quantiles": ("train/loss", "val/rmse", "test/rmse", "test/coverage"),
}


@pytest.fixture(autouse=True)
def houses(workdir: Path) -> None:
    made_up.write(workdir / "data")


def undropped(name: str) -> tuple[str, ...]:
    return (*RUNS[name], *UNDROPPED, *(("--model.net.attention_dropout", "0") if name == "ft" else ()))


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_resumes_exactly(cli: Cli, name: str) -> None:
    assert_resumes_exactly(cli, STEPS[name], *RUNS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_batches_that_do_not_fit_into_memory(cli: Cli, name: str) -> None:
    assert_same_in_halves(cli, *undropped(name))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts processes as torchrun does")
@pytest.mark.parametrize("name", RUNS)
def test_two_processes(workdir: Path, name: str) -> None:
    assert_same_in_two_processes(workdir, 40, METRICS[name], *undropped(name))
