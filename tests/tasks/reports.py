"""What a task says in the report of a run: of a test alone, and of a training from the command line."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Trainer
from torch import Tensor

from playbook import Task, TestReport
from playbook.charts import style
from playbook.insight.report.collect import Collect
from playbook.testing.command import UNSAVED, Cli


def report_of(task: Any, loader: Any) -> tuple[TestReport, dict[str, float], dict[str, Tensor]]:
    """The report of a test, its metrics without their stage, and the outputs that were kept."""
    assert isinstance(task, Task)
    collect = Collect()
    [logged] = Trainer(**UNSAVED, callbacks=[collect]).test(task, loader, verbose=False)
    assert not collect.fault
    with style():
        report = task.report(collect.outputs, task.facts)  # type: ignore[operator]  # each of these tasks has one
    return report, {name.removeprefix("test/"): value for name, value in logged.items()}, collect.outputs


def assert_means(report: TestReport, logged: dict[str, float], names: set[str]) -> None:
    """Metrics of these names are the means of the samples."""
    assert names <= report.samples.keys() & logged.keys()
    for name in names:
        assert report.samples[name].double().mean().item() == pytest.approx(logged[name], rel=1e-5), name


def noted_by_fit(cli: Cli, monkeypatch: pytest.MonkeyPatch, titles: list[str], *options: str) -> dict[str, Any]:
    """Trains for an epoch, and returns what report.json has, after a look at the page.

    Args:
        cli: runs the command line.
        monkeypatch: switches on reports, which tests do without.
        titles: of the task's own charts and tables, which the page has to show.
        options: of the training.
    """
    monkeypatch.setenv("PLAYBOOK_REPORT", "true")
    done = cli("fit", *options, "--seed_everything", "1", "--trainer.max_epochs", "1", "--run_dir", "run")
    assert done.code == 0, done.err
    assert "incomplete" not in done.err
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert len(page) < 2e6
    for title in titles:
        assert f">{title}<" in page, title
    noted = json.loads(Path("run/report.json").read_text())
    assert noted["examples"]
    assert all(block.get("rows") or block.get("pictures") for block in noted["examples"])
    return noted


def assert_samples_are_the_metrics(names: set[str]) -> None:
    """Metrics of these names of the training in the folder run are means of the columns of its test.csv."""
    rows = list(csv.DictReader(Path("run/test.csv").read_text().splitlines()))
    logged = json.loads(Path("run/metrics.json").read_text())["test"]
    for name in names:
        mean = sum(float(row[name]) for row in rows) / len(rows)
        assert mean == pytest.approx(logged[f"test/{name}"], rel=1e-3), name
