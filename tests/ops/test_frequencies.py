"""Steps of time series, against pandas."""

from typing import Any

import numpy as np
import pytest

from src.ops.frequencies import (
    calendar_features,
    calendar_names,
    complete,
    future_steps,
    infer_frequency,
    later,
    parse_frequency,
    season_length,
    step_numbers,
)

pandas = pytest.importorskip("pandas")
STARTS = {
    "15min": "2016-02-28 23:10:00",
    "h": "2016-12-31 22:00:00",
    "6h": "2016-02-28 01:30:00",
    "D": "2015-12-25",
    "B": "2016-02-24 17:00:00",
    "W": "2016-02-20",
    "MS": "2015-11-01",
    "ME": "2015-11-30",
    "QS": "2015-10-01",
    "QE": "2015-12-31",
    "YS": "2015-01-01",
    "YE": "2015-12-31 12:00:00",
    "2MS": "2015-11-01",
}


def seconds(times: Any) -> np.ndarray:
    return times.to_numpy().astype("datetime64[s]").astype(np.int64)


def times_of(frequency: str, count: int = 40) -> Any:
    step = "7D" if frequency == "W" else frequency  # pandas' own weeks end on Sundays
    return pandas.date_range(STARTS[frequency], periods=count, freq=step)


@pytest.mark.parametrize("frequency", STARTS)
def test_inferred_frequency_continues_like_pandas(frequency: str) -> None:
    times = times_of(frequency)
    inferred = infer_frequency([seconds(times)])
    assert str(inferred) == frequency
    assert parse_frequency(str(inferred)) == inferred
    expected = [str(time) for time in times[1:]]
    assert future_steps(int(seconds(times)[0]), frequency, 39) == expected


@pytest.mark.parametrize("frequency", STARTS)
def test_steps_are_counted_across_gaps(frequency: str) -> None:
    keep = np.delete(np.arange(40), [3, 17, 18, 30])
    points = seconds(times_of(frequency))[keep]
    inferred = infer_frequency([points])
    assert inferred is not None
    assert str(inferred) == frequency
    numbers, is_regular = step_numbers(points, inferred)
    assert numbers.tolist() == keep.tolist()
    assert is_regular.all()


def test_a_point_beside_the_grid_is_found() -> None:
    points = seconds(times_of("h"))
    points[[0, 7]] += 600  # the first one too: the grid is that of most points
    frequency = infer_frequency([points])
    assert frequency is not None
    assert str(frequency) == "h"
    assert np.flatnonzero(~step_numbers(points, frequency)[1]).tolist() == [0, 7]
    weekend = np.append(seconds(times_of("B")), seconds(pandas.DatetimeIndex(["2016-06-04 17:00:00"])))
    assert np.flatnonzero(~step_numbers(weekend, parse_frequency("B"))[1]).tolist() == [40]


def test_another_day_of_the_month_is_kept_through_february() -> None:
    points = seconds(pandas.DatetimeIndex(["2016-01-30", "2016-02-29", "2016-03-30"]))
    frequency = infer_frequency([points])
    assert str(frequency) == "M-30"
    assert future_steps(int(points[1]), "M-30", 2) == ["2016-03-30 00:00:00", "2016-04-30 00:00:00"]
    assert str(complete(parse_frequency("monthly"), points)) == "M-30"
    assert str(complete(parse_frequency("quarterly"), points[:1] - 15 * 86_400)) == "Q-15"


def test_one_week_of_working_days_is_daily() -> None:
    week = seconds(pandas.date_range("2016-02-22", periods=5, freq="D"))
    assert str(infer_frequency([week])) == "D"
    assert infer_frequency([week[:1]]) is None


def test_a_weekend_is_followed_by_monday() -> None:
    saturday = int(seconds(pandas.DatetimeIndex(["2016-02-27 08:00:00"]))[0])
    assert future_steps(saturday, "B", 1) == ["2016-02-29 08:00:00"]


def test_later_goes_back_too() -> None:
    points = seconds(times_of("ME"))
    assert (later(points[5:], parse_frequency("ME"), -5) == points[:-5]).all()


@pytest.mark.parametrize(("word", "alias"), [("hourly", "h"), ("business days", "B"), ("15 minutes", "15min")])
def test_words(word: str, alias: str) -> None:
    assert parse_frequency(word) == parse_frequency(alias)


@pytest.mark.parametrize("text", ["", "fortnightly", "0h", "M-32", "-1D"])
def test_no_frequency(text: str) -> None:
    with pytest.raises(ValueError, match=r"frequency: expected a step such as 15min, .*, got"):
        parse_frequency(text)


def test_calendar_has_the_periods_longer_than_a_step() -> None:
    periods = {"15min": 5, "h": 4, "6h": 4, "D": 3, "B": 3, "W": 2, "MS": 1, "QE": 1, "YE": 0}
    assert {name: len(calendar_names(parse_frequency(name))) // 2 for name in periods} == periods
    for name, number in periods.items():
        features = calendar_features(seconds(times_of(name)), parse_frequency(name))
        assert features.shape == (40, 2 * number)


def test_calendar_values_follow_pandas() -> None:
    times = times_of("15min", 3000)
    shares = [times.minute / 60, times.hour / 24, times.day_of_week / 7, (times.day - 1) / 31, (times.month - 1) / 12]
    angles = 2 * np.pi * np.stack(shares, axis=1)
    features = calendar_features(seconds(times), parse_frequency("15min"))
    np.testing.assert_allclose(features[:, 0::2], np.sin(angles), atol=1e-12)
    np.testing.assert_allclose(features[:, 1::2], np.cos(angles), atol=1e-12)


@pytest.mark.parametrize(
    ("frequency", "steps"),
    [("15min", 96), ("h", 24), ("D", 7), ("B", 5), ("W", 52), ("MS", 12), ("QS", 4), ("YS", 1), ("7h", 3)],
)
def test_season_length(frequency: str, steps: int) -> None:
    assert season_length(frequency) == steps


def test_future_steps_keep_the_offset() -> None:
    assert future_steps(0, "h", 2, "+02:00") == ["1970-01-01 01:00:00+02:00", "1970-01-01 02:00:00+02:00"]
