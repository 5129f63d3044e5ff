"""Partial files of callbacks, loggers and for debugging, stacked on a recipe."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from playbook.command import discovery
from playbook.testing.command import Cli
from tests.conftest import CNN_DIGITS, MLP_DIGITS, ROOT

PARTIALS = [entry.path for entry in discovery.partials() if "/trainer/" not in entry.path]  # in test_trainer_configs.py


@pytest.mark.parametrize("partial", PARTIALS)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*noload.*")  # of MLflow's use of SQLAlchemy
def test_partial_stacks_on_a_recipe(cli: Cli, partial: str) -> None:
    if "mlflow" in partial and find_spec("mlflow") is None:
        pytest.skip("needs MLflow: the extra `mlflow`")
    small = ("--model.net.widths", "[4]", "--data.shift", "0")
    if "overfit" not in partial:
        small = (*small, "--trainer.max_epochs", "1", "--trainer.limit_train_batches", "2")
    done = cli("fit", "--config", CNN_DIGITS, "--config", str(ROOT / partial), "--run_dir", "run", *small)
    assert done.code == 0, done.err
    assert Path("run/checkpoints/last.ckpt").is_file()


@pytest.mark.slow
def test_overfit_learns_its_batch_by_heart(cli: Cli) -> None:
    for recipe in (CNN_DIGITS, MLP_DIGITS):
        run = Path(recipe).stem
        overfit = ("--config", str(ROOT / "configs/debug/overfit.yaml"))
        assert cli("fit", "--config", recipe, *overfit, "--run_dir", run).code == 0
        loss = json.loads(Path(run, "metrics.json").read_text())["metrics"]["train/loss"]
        assert loss < 0.05, f"{recipe}: train/loss {loss:.3g} after 100 epochs on one batch"


@pytest.mark.slow
def test_profiler_writes_its_table_into_the_run(cli: Cli) -> None:
    profiler = ("--config", str(ROOT / "configs/debug/profiler.yaml"), "--trainer.max_steps", "4")
    assert cli("fit", "--config", CNN_DIGITS, *profiler, "--run_dir", "run").code == 0
    assert "run_training_batch" in Path("run/fit-profile.txt").read_text()
