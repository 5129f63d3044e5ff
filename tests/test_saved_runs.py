"""A run saved when the machine still stood in `src/`: it is tested, predicts and continues as it did then.

`runs/before-move/` has two epochs of three, with Muon, WarmupCosine, EMA and NonFinite, all of which moved
since; beside it, what the former code made of it: first rows of its predictions, and metrics of all three epochs.
"""

import csv
import json
import shutil
from pathlib import Path

import pytest

from playbook import moved
from tests.conftest import ROOT, Cli

PREDICTIONS = "predictions/predictions.csv"
SAVED = ROOT / "tests/runs/before-move"


@pytest.fixture
def run(workdir: Path) -> Path:
    return shutil.copytree(SAVED, workdir / "run")


def rows(file: Path) -> list[list[float]]:
    with file.open(newline="") as text:
        return [[float(cell or "nan") for cell in row] for row in list(csv.reader(text))[1:]]


def test_is_tested_as_then(cli: Cli, run: Path) -> None:
    expected = json.loads((SAVED / "metrics.json").read_text())["test"]
    assert cli("test", "--ckpt_path", "run").code == 0
    assert json.loads((run / "metrics.json").read_text())["test"] == pytest.approx(expected, rel=1e-5)


def test_predicts_as_then(cli: Cli, run: Path) -> None:
    done = cli("predict", "--ckpt_path", "run", "--top", "10")
    assert done.code == 0
    assert "contains no class names: assuming 0, 1, 2, 3, 4 and 5 more, without a check\n" in done.out
    texts = [(folder / name).read_text() for folder, name in ((SAVED, "first-predictions.csv"), (run, PREDICTIONS))]
    former, predicted = (list(csv.DictReader(text.splitlines())) for text in texts)
    expected = [{name: float(cell) for name, cell in row.items()} for row in former]
    for row, old in zip(predicted, expected, strict=False):  # the old ones have a column a class
        assert (int(row["class"]), int(row["target"])) == (old["label"], old["target"])
        places = {row[f"class{end}"]: float(row[f"probability{end}"]) for end in ["", *(f"_{k}" for k in range(2, 11))]}
        assert places == pytest.approx({str(k): old[f"probability_{k}"] for k in range(10)}, rel=1e-4)


def test_continues_as_then(cli: Cli, run: Path) -> None:
    done = cli("fit", "--run_dir", "run", "--ckpt_path", "last", "--trainer.max_epochs", "3")
    assert done.code == 0, done.err
    for row, expected in zip(rows(run / "metrics.csv"), rows(SAVED / "whole.csv"), strict=True):
        assert row == pytest.approx(expected, rel=1e-4, nan_ok=True)


def test_its_configuration_runs_again(cli: Cli, run: Path) -> None:
    done = cli("fit", "--config", "run/config.yaml", "--run_dir", "new", "--trainer.fast_dev_run", "true")
    assert done.code == 0, done.err


@pytest.mark.parametrize(("former", "now"), moved.MOVED.items())
def test_a_former_module_is_the_one_of_now(former: str, now: str) -> None:
    from importlib import import_module

    names = [name for name, value in vars(import_module(now)).items() if getattr(value, "__module__", "") == now]
    for name in names:
        assert getattr(import_module(former), name) is getattr(import_module(now), name)
