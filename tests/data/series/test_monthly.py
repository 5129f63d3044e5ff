"""Three monthly series, against the published statistics of each."""

import statistics
from itertools import chain
from typing import Any

import pytest

from src.data.series.monthly import SERIES, MonthlySeries


@pytest.mark.parametrize(  # as a summary of R's datasets::USAccDeaths and datasets::ldeaths
    ("name", "least", "mean", "most"),
    [("AccidentalDeaths", 6892, 8788.7917, 11317), ("LungDeaths", 1300, 2056.6250, 3891)],
)
def test_the_values_are_the_published_ones(name: str, least: int, mean: float, most: int) -> None:
    values = list(chain.from_iterable(SERIES[name][1]))
    assert (len(values), min(values), max(values)) == (72, least, most)
    assert statistics.mean(values) == pytest.approx(mean, abs=1e-4)


def test_each_series_is_split_by_itself() -> None:
    data: Any = MonthlySeries()
    data.setup("fit")
    assert [len(data.train_set), len(data.val_set), len(data.test_set)] == [13 + 85 + 13, 3 * 7, 3 * 7]
    assert data.ids(data.test_set)[::7] == [
        "AccidentalDeaths@1977-06-01 00:00:00",
        "AirPassengers@1959-06-01 00:00:00",
        "LungDeaths@1978-06-01 00:00:00",
    ]
