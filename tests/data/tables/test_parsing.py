"""Values that are not taken as they are: each is named with its row."""

import math
from typing import Any

import numpy as np

from src.data.tables.parsing import parse_rows
from src.data.tables.rows import Rows

MISSING = frozenset({""})


def rows_of(**values: list[Any]) -> Rows:
    return Rows([f"t.csv:{line}" for line in range(2, 2 + len(next(iter(values.values()))))], dict(values))


def test_each_row_with_a_mistake_is_named_once() -> None:
    rows = rows_of(x=["1", "one", ""], d=["2024-01-01", "soon", "now"])
    parsed = parse_rows(rows, {"x": "number", "d": "date"}, MISSING)
    assert parsed.problems.keys() == {1, 2}
    assert parsed.problems[1].startswith("x: expected a number, got 'one'; --data.missing+ 'one' reads it as no value")
    assert parsed.problems[2].startswith("d: expected a date such as 2024-05-17")
    np.testing.assert_array_equal(parsed.columns["x"], [1, math.nan, math.nan])
    assert not parsed.notes


def test_infinite_numbers_count_as_missing() -> None:
    parsed = parse_rows(rows_of(x=["1", "inf", "", "-inf"]), {"x": "number"}, MISSING)
    np.testing.assert_array_equal(parsed.columns["x"], [1, math.nan, math.nan, math.nan])
    assert not parsed.problems
    assert parsed.notes == ["2 infinite numbers count as missing, such as t.csv:3: x inf"]


def test_time_zones_that_differ_are_told() -> None:
    mixed = rows_of(d=["2024-01-01T10:00:00+02:00", "2024-01-01T10:00:00", ""])
    parsed = parse_rows(mixed, {"d": "date"}, MISSING)
    assert parsed.columns["d"][1] - parsed.columns["d"][0] == 2 * 3600
    assert len(parsed.notes) == 1
    assert "d has times with and without a time zone" in parsed.notes[0]
    offsets = rows_of(d=["2024-01-01T10:00:00+02:00", "2024-01-01T10:00:00+01:00"])
    assert "d has times with 2 offsets from UTC" in parse_rows(offsets, {"d": "date"}, MISSING).notes[0]


def test_one_time_zone_is_not() -> None:
    for dates in (["2024-01-01T10:00:00Z", "2024-01-01T10:00:00+00:00"], ["2024-01-01", "2024-01-01T10:00:00"]):
        assert not parse_rows(rows_of(d=dates), {"d": "date"}, MISSING).notes
