"""Errors of every test window, against the metrics and the predictions of the same windows."""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from playbook import Trainer, UserError, build
from playbook.testing.command import Cli
from playbook.testing.line import Line, points
from src.callbacks.series.backtest import Backtest
from src.data.series.series import Series
from src.nets.series.linear import DLinear
from src.tasks.forecasting import Forecasting
from tests.data.series.tables import hours, long_table, write

QUIET: dict[str, Any] = {"run_dir": False, "accelerator": "cpu", "enable_progress_bar": False}


def run_test(data: Any, folder: Path) -> tuple[dict[str, float], list[dict[str, str]]]:
    """The metrics, and the rows of the table."""
    torch.manual_seed(0)
    trainer = Trainer(**QUIET, callbacks=[Backtest()], default_root_dir=folder)
    task = build(Forecasting, data, net=DLinear)
    metrics = trainer.test(task, datamodule=data, verbose=False)[0]
    return dict(metrics), list(csv.DictReader((folder / "backtest.csv").read_text().splitlines()))


def test_the_mean_over_windows_is_the_metric(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "t.csv", long_table({"a": 60, "b@1": 80}))
    data = Series(str(file), look_back=6, horizon=3)
    metrics, rows = run_test(data, tmp_path)
    assert [row["series"] for row in rows] == ["a"] * (12 - 3 + 1) + ["b@1"] * (16 - 3 + 1)
    assert rows[0]["origin"] == "2020-02-22 00:00:00"
    for name in ("mse", "mae"):
        mean = sum(float(row[name]) for row in rows) / len(rows)
        assert mean == pytest.approx(metrics[f"test/{name}"], rel=1e-4)
    for row in rows:  # the units differ by the deviation of the series
        deviation = data.facts["series_scales"][row["series"]][1][0]
        assert float(row["y_mae"]) == pytest.approx(float(row["mae"]) * deviation, rel=1e-4)
        assert float(row["y_mse"]) == pytest.approx(float(row["mse"]) * deviation**2, rel=1e-4)
    worst = max(rows, key=lambda row: float(row["mse"]))
    said = capsys.readouterr().out
    assert f"worst origin {worst['origin']} of {worst['series']}, {float(worst['mse']):.4g}" in said
    means = {
        name: torch.tensor([float(row["mse"]) for row in rows if row["series"] == name]).mean() for name in ("a", "b@1")
    }
    worst_name = max(means, key=lambda name: means[name])
    assert f"worst series {worst_name}, {means[worst_name]:.4g}" in said


class Zero(nn.Module):
    """Forecasts the mean of the training rows."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, past: torch.Tensor) -> torch.Tensor:
        return past[:, -1:].expand(-1, 3, -1) * 0 + self.shift


def test_errors_in_own_units_by_channel_and_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = torch.arange(60.0)
    table = {"date": hours(60), "p": steps.tolist(), "q": (steps * 10).tolist()}
    data = Series(str(write(tmp_path / "t.csv", table)), look_back=4, horizon=3)
    trainer = Trainer(**QUIET, callbacks=[Backtest()], default_root_dir=tmp_path)
    trainer.test(Forecasting(Zero()), datamodule=data, verbose=False)
    rows = list(csv.DictReader((tmp_path / "backtest.csv").read_text().splitlines()))
    errors = steps.unfold(0, 3, 1)[48:] - steps[:42].mean()  # (N, H)
    for name, scale in (("p", 1), ("q", 10)):
        expected = (errors * scale).square().mean(dim=1)
        assert [float(row[f"{name}_mse"]) for row in rows] == pytest.approx(expected.tolist(), rel=1e-5)
    by_step = (errors / steps[:42].std(correction=0)).square().mean(dim=0)
    expected_line = ", ".join(f"{value:.4g} at step {step + 1}" for step, value in enumerate(by_step.tolist()))
    assert f"backtest  mse {expected_line}; worst origin 2020-01-08 08:00:00" in capsys.readouterr().out


def test_the_option_of_the_verb(cli: Cli) -> None:
    recipe = (
        "--data",
        "AirPassengers",
        "--model",
        "Forecasting",
        "--model.net",
        "DLinear",
        "--trainer.max_epochs",
        "1",
    )
    assert cli("fit", *recipe, "--run_dir", "run").code == 0
    done = cli("test", "--ckpt_path", "run", "--backtest")
    assert done.code == 0, done.err
    assert "backtest  run/backtest.csv" in done.out
    assert len(Path("run/backtest.csv").read_text().splitlines()) == 1 + 13


class Silent(Forecasting):
    """Predicts without saying the target."""

    def predict_step(self, batch: Any, batch_idx: int) -> dict[str, torch.Tensor]:
        return {"forecast": super().predict_step(batch, batch_idx)["forecast"]}


def test_other_data_and_tasks(tmp_path: Path) -> None:
    def run(task: Any, data: Any) -> None:
        Trainer(**QUIET, callbacks=[Backtest()], default_root_dir=tmp_path).test(task, data, verbose=False)

    with pytest.raises(UserError, match="Backtest: expected windows of series, such as those of Series, got NoneType"):
        run(Line(), points())
    file = write(tmp_path / "t.csv", long_table({"a": 60}))
    with pytest.raises(UserError, match="needs a task whose predict_step returns forecast and target"):
        run(Silent(Zero()), Series(str(file), look_back=4, horizon=3))
