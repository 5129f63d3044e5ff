"""Tables from the command line: trained, resumed at any step, in two processes, and asked about new rows."""

import csv
import json
import random
import sys
from pathlib import Path

import pytest

from playbook.testing.command import Cli
from playbook.testing.processes import values
from playbook.testing.resume import PowerCutError, assert_same_ending
from tests.conftest import Group

RUN = (
    "fit", "--data", "Table", "--data.root", "penguins.csv", "--data.target", "species", "--data.batch_size", "32",
    "--model", "Classification", "--model.net", "TabM", "--model.net.members", "3", "--model.net.width", "8",
    "--trainer.max_epochs", "3", "--trainer.log_every_n_steps", "1",
)  # fmt: skip


@pytest.fixture
def penguins(workdir: Path) -> Path:
    generator = random.Random(0)
    lines = ["mass,island,seen,species"]
    for number in range(150):
        species = generator.choice(["Adelie", "Gentoo"])
        mass = generator.gauss(5000 if species == "Gentoo" else 3500, 200)
        island = generator.choice(["Dream", "Biscoe", ""])
        lines.append(f"{mass:.0f},{island},2024-{number % 12 + 1:02d}-{number % 28 + 1:02d},{species}")
    (workdir / "penguins.csv").write_text("\n".join(lines) + "\n")
    return workdir


@pytest.mark.slow
def test_a_whole_command_and_new_rows(cli: Cli, penguins: Path) -> None:
    done = cli(
        *RUN,
        "--run_dir",
        "run",
        "--model.optimizer",
        "AdamW",
        "--model.optimizer.lr",
        "0.05",
        "--trainer.max_epochs",
        "6",
    )
    assert done.code == 0, done.err
    assert "columns: 1 number (mass); 1 category (island); 1 date (seen); target species, 2 classes" in done.out
    assert json.loads((penguins / "run/metrics.json").read_text())["test"]["test/accuracy"] > 0.9
    rows = ["island,colour,seen,mass", "Mars,red,2024-05-01,3450", ",blue,2024-06-01 12:00:00,5050"]
    (penguins / "new.csv").write_text("\n".join(rows) + "\n")
    done = cli("predict", "--ckpt_path", "run", "--input", "new.csv")
    assert done.code == 0, done.err
    assert "left out columns that training did not have: colour" in done.err
    [table] = (penguins / "run/predictions").rglob("predictions.csv")
    answers = list(csv.DictReader(table.read_text().splitlines()))
    assert [answer["class"] for answer in answers] == ["Adelie", "Gentoo"]
    (penguins / "new.csv").write_text("mass,islands,seen\n3450,Dream,2024-05-01\n")
    done = cli("predict", "--ckpt_path", "run", "--input", "new.csv")
    assert done.code == 2
    assert "expected a column island, got mass, islands, seen. Nearest: islands" in done.err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--data.target", "specie"), "--data.target specie: penguins.csv has no such column"),
        (("--data.folds", "3", "--data.fold", "3"), "fold: expected 0 to 2, got 3"),
        (("--data.categorical", "[mas]"), "--data.categorical mas: penguins.csv has no such column"),
    ],
)
def test_a_mistake_is_one_line(cli: Cli, penguins: Path, options: tuple[str, ...], sentence: str) -> None:
    done = cli(*RUN, *options)
    assert done.code == 2
    assert sentence in done.err
    assert "Traceback" not in done.err


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 4, 6])  # an epoch has 4 steps
def test_a_run_that_was_cut_ends_as_if_it_had_not_been(cli: Cli, penguins: Path, step: int) -> None:
    assert cli(*RUN, "--run_dir", "whole").code == 0
    cut = ("--trainer.callbacks+=playbook.testing.resume.CutAt", f"--trainer.callbacks.step={step}")
    with pytest.raises(PowerCutError):
        cli(*RUN, "--run_dir", "cut", "--ckpt_path", "last", *cut)
    done = cli(
        *RUN, "--run_dir", "cut", "--ckpt_path", "last", "--trainer.callbacks", "null", "--data.num_workers", "2"
    )
    assert done.code == 0, done.err
    assert_same_ending("cut", "whole")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts processes as torchrun does")
def test_two_processes_measure_every_row_once(penguins: Path) -> None:
    """Half the batch in each of two processes trains and measures what one process does."""
    undropped = ("--model.net.dropout", "0", "--model.net.category_dropout", "0")
    Group(1, *RUN, *undropped, "--run_dir", "one", cwd=penguins).finish()
    two = ("--data.batch_size", "16", "--trainer.devices", "2", "--trainer.strategy", "ddp", "--run_dir", "two")
    Group(2, *RUN, *undropped, *two, cwd=penguins).finish()
    for name in ("train/loss", "val/loss", "test/loss", "val/accuracy", "test/accuracy"):
        assert values(penguins / "two", name) == pytest.approx(values(penguins / "one", name), abs=1e-5), name


@pytest.mark.slow
def test_initial_weights_keep_the_columns_that_they_were_trained_on(cli: Cli, penguins: Path) -> None:
    """In whatever order another table has them, and with the codes and the scaling of their training."""
    assert cli(*RUN, "--run_dir", "run").code == 0
    first, *lines = [line.split(",") for line in (penguins / "penguins.csv").read_text().splitlines()]
    generator = random.Random(1)
    chosen = [[line[i] for i in (3, 2, 0, 1)] for line in lines if line[1] != "Biscoe" or generator.random() < 0.5]
    table = [[first[i] for i in (3, 2, 0, 1)], *chosen]
    (penguins / "other.csv").write_text("\n".join(map(",".join, table)) + "\n")
    frozen = ("--model.optimizer", "SGD", "--model.optimizer.lr", "1e-12", "--trainer.max_epochs", "1")
    done = cli(*RUN, "--data.root", "other.csv", "--init_from", "run", *frozen, "--run_dir", "next")
    assert done.code == 0, done.err
    facts = [json.loads((penguins / run / "metrics.json").read_text())["facts"] for run in ("run", "next")]
    assert facts[0]["table"] == facts[1]["table"]
    tested = cli("test", "--ckpt_path", "run", "--data.root", "other.csv")
    expected = json.loads((penguins / "run/metrics.json").read_text())["test"]["test/accuracy"]
    found = json.loads((penguins / "next/metrics.json").read_text())["test"]["test/accuracy"]
    assert tested.code == 0, tested.err
    assert found == pytest.approx(expected), tested.out
