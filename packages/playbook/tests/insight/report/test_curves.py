"""Curves of metrics.csv, from whole and from damaged files."""

import math
from pathlib import Path

import pytest

from playbook.insight.report import curves
from playbook.insight.report.blocks import Chart, Table


def write(folder: Path, text: str) -> Path:
    (folder / "metrics.csv").write_text(text)
    return folder / "metrics.csv"


def test_empty_cells_and_damaged_lines_are_left_out(tmp_path: Path) -> None:
    text = "epoch,step,train/loss,val/loss\n0,1,0.5,\n0,2,,0.4\n0,x,1,1\n0,3,word,nan\n1,4,0.1"
    assert curves.read(write(tmp_path, text))["train/loss"] == ([1.0], [0.5])
    steps, values = curves.read(tmp_path / "metrics.csv")["val/loss"]
    assert steps == [2.0, 3.0]
    assert values[0] == 0.4
    assert math.isnan(values[1])


def test_no_file_has_no_curves(tmp_path: Path) -> None:
    assert curves.read(tmp_path / "metrics.csv") == {}
    assert curves.read(write(tmp_path, "")) == {}
    assert curves.read(write(tmp_path, "loss\n0.5\n")) == {}, "no steps"


def test_neighbours_are_averaged() -> None:
    steps = [float(step) for step in range(1000)]
    thin_steps, thin = curves.thinned((steps, [*steps[:-1], math.nan]))
    assert len(thin) == 334
    assert (thin_steps[0], thin[0]) == (2.0, 1.0)
    assert curves.thinned(([1.0], [2.0])) == ([1.0], [2.0])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("val/loss", ("val", "loss")),
        ("val_loss", ("val", "loss")),
        ("valid_accuracy", ("val", "accuracy")),
        ("train_loss_epoch", ("train", "loss")),
        ("train/loss_step", ("train, each step", "loss")),
        ("lr", ("", "lr")),
        ("value", ("", "value")),
    ],
)
def test_stages(name: str, expected: tuple[str, str]) -> None:
    assert curves.split_stage(name) == expected


def test_stages_of_a_quantity_share_a_chart() -> None:
    points = ([1.0, 2.0], [0.5, 0.25])
    blocks = curves.blocks({"train/loss": points, "val/loss": points, "test/loss": points, "lr": points}, best_step=2)
    assert [block.title for block in blocks if isinstance(block, Chart)] == ["loss", "lr"]
    assert isinstance(blocks[0], Chart)
    assert blocks[0].alt == "train from 0.5 to 0.25; val from 0.5 to 0.25"
    assert ">best<" in blocks[0].svg


def test_many_metrics_and_values_that_are_not_finite_are_told() -> None:
    many = {f"m{number}": ([1.0, 2.0], [1.0, math.nan]) for number in range(curves.MOST_CHARTS + 3)}
    *charts, rest, faulty = curves.blocks(many, None)
    assert len(charts) == curves.MOST_CHARTS
    assert isinstance(rest, Table)
    assert rest.title == "Last values of 3 further metrics"
    assert isinstance(faulty, Table)
    assert faulty.rows[0] == {"metric": "m0", "not finite": 1, "of": 2, "first at step": 2}


def test_a_metric_without_a_finite_value_has_no_chart() -> None:
    [faulty] = curves.blocks({"loss": ([1.0, 2.0], [math.nan, math.inf])}, None)
    assert isinstance(faulty, Table)
