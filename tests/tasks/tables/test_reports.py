"""The report of a regression from the command line."""

import pytest

from playbook.testing.command import Cli
from tests.tasks.reports import assert_samples_are_the_metrics, noted_by_fit

DIABETES = ("--model", "Regression", "--model.net", "TabularMLP", "--data", "ScikitTable", "--data.name", "diabetes")


@pytest.mark.slow
def test_errors_of_a_regression(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    titles = ["Predicted over target", "Residuals over predictions", "Residuals", "Errors by target"]
    noted = noted_by_fit(cli, monkeypatch, titles, *DIABETES)
    assert [block["title"] for block in noted["examples"]] == ["First test samples", "Largest errors"]
    errors = [abs(row["value"] - row["target"]) for row in noted["examples"][1]["rows"]]
    assert errors == sorted(errors, reverse=True)
    assert_samples_are_the_metrics({"mae"})
