"""The report of forecasts from the command line."""

import pytest

from playbook.testing.command import Cli
from tests.conftest import ROOT
from tests.tasks.reports import assert_samples_are_the_metrics, noted_by_fit


@pytest.mark.slow
def test_errors_of_forecasts(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    titles = ["Error by step of the horizon", "Errors by channel"]
    noted = noted_by_fit(cli, monkeypatch, titles, "--config", str(ROOT / "configs/series/dlinear-airline.yaml"))
    assert [block["kind"] for block in noted["examples"]] == ["Gallery", "Gallery"]
    _, text = noted["examples"][0]["pictures"][0]
    assert text.startswith("AirPassengers@1958-12-01 00:00:00: mse ")
    assert_samples_are_the_metrics({"mse", "mae"})
