"""Series: exact resume, batches that do not fit into memory, and two processes."""

import sys
from pathlib import Path

import pytest

from playbook.testing.command import Cli
from tests.trainings import HALVES, assert_resumes_exactly, assert_same_in_halves, assert_same_in_two_processes, fit

# 61 training windows, 4 steps an epoch; 13 windows for validation and test each
AIRLINE = ("--data", "AirPassengers", "--data.calendar", "true", "--data.batch_size", "16", "--seed_everything", "1")
AIRLINE = (*AIRLINE, "--model", "Forecasting", "--trainer.max_epochs", "2")
PATCHES = ("--model.net", "PatchTransformer", "--model.net.patch_size", "6", "--model.net.stride", "6")
LEVELS = ("--model.loss", "quantile", "--model.quantiles", "[0.1,0.5,0.9]", "--model.net.num_quantiles", "3")
PATCH = (*AIRLINE, *PATCHES, "--model.net.dim", "8", "--model.net.depth", "1")
RUNS = {
    "linear": (*AIRLINE, "--model.net", "DLinear"),
    "recurrent": (*AIRLINE, "--model.net", "RecurrentForecaster", "--model.net.hidden", "8"),
    "quantiles": (*AIRLINE, "--model.net", "NLinear", *LEVELS),
}
UNDROPPED = {**RUNS, "recurrent": (*RUNS["recurrent"], "--model.net.dropout", "0")}
METRICS = ("train/loss", "val/mse", "val/mae", "test/mse", "test/mae")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RUNS, "patch"])
def test_resumes_exactly(cli: Cli, name: str) -> None:
    assert_resumes_exactly(cli, [3, 5, 6], *{**RUNS, "patch": PATCH}[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_batches_that_do_not_fit_into_memory(cli: Cli, name: str) -> None:
    assert_same_in_halves(cli, *UNDROPPED[name])


@pytest.mark.slow
def test_batch_norms_see_the_parts(cli: Cli) -> None:
    out = fit(cli, "run", *PATCH, HALVES)
    assert "out of memory with 16 samples: continuing with 2 parts of at most 8" in out
    assert "; batch norms and dropouts see the parts\n" in out


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts processes as torchrun does")
@pytest.mark.parametrize("name", RUNS)
def test_two_processes(workdir: Path, name: str) -> None:
    coverage = ("val/coverage", "test/coverage") if name == "quantiles" else ()
    assert_same_in_two_processes(workdir, 16, (*METRICS, *coverage), *UNDROPPED[name])
