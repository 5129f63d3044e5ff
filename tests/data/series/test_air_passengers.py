"""The airline passengers, against the published statistics of the series."""

import statistics
from inspect import signature
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from src.data.series.air_passengers import THOUSANDS, AirPassengers
from tests.data.series.tables import write


@pytest.fixture
def data() -> Any:
    passengers = AirPassengers(calendar=True)
    passengers.setup("fit")
    return passengers


def test_the_values_are_those_of_box_and_jenkins() -> None:
    months = list(chain.from_iterable(THOUSANDS))
    assert (len(months), min(months), max(months)) == (144, 104, 622)
    assert statistics.mean(months) == pytest.approx(280.2986, abs=1e-4)  # as R's datasets::AirPassengers
    assert statistics.stdev(months) == pytest.approx(119.9663, abs=1e-4)


def test_the_last_years_are_validation_and_test(data: Any) -> None:
    assert [len(data.train_set), len(data.val_set), len(data.test_set)] == [96 - 36 + 1, 13, 13]
    assert data.ids(data.test_set)[0] == "AirPassengers@1958-12-01 00:00:00"
    assert data.facts["frequency"] == "MS"
    assert data.facts["num_known_covariates"] == 2


def test_saved_options_make_the_same_windows(data: Any) -> None:
    options = {name: data.hparams[name] for name in signature(AirPassengers).parameters}
    again = AirPassengers(**options)
    again.setup("fit")
    assert options["calendar"]
    assert again.facts == data.facts
    assert len(again.train_set) == len(data.train_set)  # type: ignore[arg-type]


def test_a_table_is_read_like_the_months(tmp_path: Path, data: Any) -> None:
    months = list(chain.from_iterable(THOUSANDS))[:120]
    dates = [f"{1949 + i // 12}-{i % 12 + 1:02}" for i in range(120)]
    inputs = data.read(write(tmp_path / "now.csv", {"ds": dates, "y": months}))
    expected = data.test_set[0][0]
    assert all(inputs[name].equal(value) for name, value in expected.items())
