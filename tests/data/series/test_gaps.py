"""Gaps, and linear interpolation against NumPy."""

import numpy as np
import pytest

from playbook import UserError
from src.data.series.columns import Columns
from src.data.series.gaps import close_gaps, fill, first_gap
from src.data.series.observations import Observations
from src.ops.frequencies import parse_frequency

DAILY = parse_frequency("D")
COLUMNS = Columns(time="ds", series=None, target=["y"], past=[], known=[], static=[])


def series(steps: list[int], values: list[float], **covariates: list[object]) -> tuple[Observations, np.ndarray]:
    own = {name: np.array(column) for name, column in covariates.items()}
    places = [f"f.csv:{number + 2}" for number in range(len(steps))]
    times = np.array(steps) * 86_400
    return Observations("a", times, places, np.array(values)[:, None], own), np.array(steps)


def test_linear_interpolation_inside_only() -> None:
    line = fill(*series([0, 1, 4, 5, 6], [np.nan, 1.0, 4.0, np.nan, 8.0]), DAILY)
    np.testing.assert_allclose(line.series.target[:, 0], [np.nan, 1, 2, 3, 4, 6, 8])
    assert line.is_filled.tolist() == [False, False, True, True, False, True, False]
    assert line.num_filled == 3
    assert line.series.times.tolist() == [day * 86_400 for day in range(7)]
    assert line.series.places[2:5] == ["f.csv:3", "f.csv:3", "f.csv:4"]


def test_covariates_are_filled_too() -> None:
    line = fill(*series([0, 2], [1.0, 3.0], price=[10.0, 20.0], holiday=["no", "yes"]), DAILY)
    assert line.series.covariates["price"].tolist() == [10, 15, 20]
    assert line.series.covariates["holiday"].tolist() == ["no", "no", "yes"]


def test_a_covariate_alone_marks_a_filled_row() -> None:
    line = fill(*series([0, 1, 2], [1.0, 2.0, 3.0], price=[10.0, np.nan, 20.0]), DAILY)
    assert line.is_filled.tolist() == [False, True, False]
    assert line.num_filled == 1


def test_no_endless_series() -> None:
    with pytest.raises(UserError, match="gaps fill: a has 2 rows of 1,001 steps of D"):
        fill(*series([0, 1000], [1.0, 2.0]), DAILY)


def test_the_first_gap_is_named() -> None:
    assert first_gap(*series([0, 1, 2], [1.0, 2.0, 3.0]), COLUMNS) == ""
    rows = first_gap(*series([0, 1, 4, 9], [1.0, 2.0, 3.0, 4.0]), COLUMNS)
    assert rows == "f.csv:3: a: 2 rows are missing after 1970-01-02 00:00:00"
    hole = first_gap(*series([0, 1, 3], [1.0, np.nan, 3.0]), COLUMNS)
    assert hole == "f.csv:3: a: no value of y at 1970-01-02 00:00:00"


def test_a_missing_covariate_is_a_gap() -> None:
    columns = COLUMNS._replace(past=["wind", "sky"], static=["area"])
    own = series([0, 1, 2], [1.0, 2.0, 3.0], wind=[1.0, np.nan, 2.0], sky=["a", "", "b"], area=[np.nan] * 3)
    assert first_gap(*own, columns) == "f.csv:3: a: no value of wind at 1970-01-02 00:00:00"
    with pytest.raises(UserError, match=r"--data.gaps stop: f\.csv:3: a: no value of wind"):
        close_gaps(*own, columns, "stop", DAILY)
    assert close_gaps(*own, columns, "fill", DAILY).series.covariates["wind"].tolist() == [1, 1.5, 2]
    assert np.isnan(close_gaps(*own, columns, "skip", DAILY).series.covariates["wind"][1])
