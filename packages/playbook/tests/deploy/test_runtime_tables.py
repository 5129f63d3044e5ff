"""Rows become numbers and categories: parsed alike one by one and together, and encoded by closed forms."""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from playbook.deploy.runtime.errors import InputError
from playbook.deploy.runtime.tables import TableReader, category_of, cycle_share, number_of, seconds_of

MISSING = frozenset({"", "?"})
PLAN: dict[str, Any] = {
    "columns": [
        {"name": "age", "kind": "number", "fill": 30.0, "indicates": True, "center": 20.0, "scale": 10.0},
        {"name": "city", "kind": "category", "codes": ["", "Bonn", "Ulm"]},
        {
            "name": "day",
            "kind": "date",
            "fill": 0.0,
            "indicates": False,
            "parts": ["time", "week"],
            "center": 0.0,
            "scale": 86_400.0,
        },
    ],
    "missing": ["", "?"],
}
ROWS: dict[str, list[Any]] = {
    "age": ["40", "?", 25, "1e1"],
    "city": ["Ulm", "Paris", "", " Bonn "],
    "day": ["1970-01-05", date(1970, 1, 12), "1970-01-05T12:00:00+00:00", None],
}


def test_encoding_by_hand() -> None:
    encoded = TableReader(PLAN).encode(ROWS)
    assert encoded["numbers"][:, 0].tolist() == [2.0, 1.0, 0.5, -1.0]
    assert encoded["numbers"][:, 1].tolist() == [4.0, 11.0, 4.5, 0.0]
    # 5 January 1970 was a Monday, where the week begins
    angles = 2 * np.pi * np.array([0, 0, 0.5 / 7, 3 / 7])
    np.testing.assert_allclose(encoded["numbers"][:, 2], np.sin(angles), atol=1e-7)
    np.testing.assert_allclose(encoded["numbers"][:, 3], np.cos(angles), atol=1e-7)
    assert encoded["categories"].tolist() == [[1, 3], [2, 0], [1, 1], [1, 2]]
    assert encoded["numbers"].dtype == np.float32
    assert encoded["categories"].dtype == np.int64


def test_numbers_far_from_those_of_training_stay_finite() -> None:
    rows = {**ROWS, "age": ["1e300", "-1e300", 20, ""]}
    assert TableReader(PLAN).encode(rows)["numbers"][:, 0].tolist() == [1e6, -1e6, 0.0, 1.0]


def test_a_row_alone_is_encoded_as_among_others() -> None:
    reader = TableReader(PLAN)
    encoded = reader.encode(ROWS)
    for number in range(4):
        row = {name: ROWS[name][number] for name in ("day", "age", "city")} | {"other": 1}
        for name, values in reader(row).inputs.items():
            assert values.tobytes() == encoded[name][number].tobytes(), (number, name)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"age": 1, "city": "Ulm"}, "expected a column day, got age, city"),
        ({"age": "old", "city": "Ulm", "day": None}, "age: expected a number, got 'old'"),
        ({"age": "1_000", "city": "Ulm", "day": None}, "age: expected a number, got '1_000'"),
        ({"age": [1], "city": "Ulm", "day": None}, r"age: expected a number, got \[1\]"),
        ({"age": 1, "city": "Ulm", "day": "31.12.2024"}, "day: expected a date such as 2024-05-17"),
        ("age", "expected a row with the columns age, city, day, got 'age'"),
    ],
)
def test_rows_that_cannot_be_read(row: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        TableReader(PLAN)(row)


TEXTS: list[Any] = ["1", "1.0", " 2 ", "1e3", "007", "-inf", "?", "", None]
RAW = [*TEXTS, 1, 1.0, True, False, 0, math.nan, math.inf, Decimal("1.50")]


@pytest.mark.parametrize("values", [RAW, TEXTS, [True, False, None], [1, 2, None], [1.5, math.nan, -0.0, 0.0]])
def test_columns_are_parsed_as_their_values(values: list[Any]) -> None:
    """1, 1.0 and True are equal, but not the same category; a column must not merge them."""
    numbers = [number_of(value, MISSING) for value in values]
    np.testing.assert_array_equal(TableReader.parse(values, "number", MISSING), numbers)
    categories = [category_of(value, MISSING) for value in [*values, [1], {"a": 1}]]
    assert TableReader.parse([*values, [1], {"a": 1}], "category", MISSING).tolist() == categories


def test_categories_are_the_same_however_they_are_written() -> None:
    assert [category_of(value, MISSING) for value in (1, 1.0, "1", " 1.00 ", Decimal(1))] == ["1"] * 5
    assert [category_of(value, MISSING) for value in (True, "True", "TRUE", False)] == ["true", "true", "true", "false"]
    assert [category_of(value, MISSING) for value in ("01069", "1069", "1.5")] == ["01069", "1069", "1.5"]
    assert [category_of(value, MISSING) for value in (None, "?", math.nan)] == ["", "", ""]


def test_dates_are_seconds_of_utc() -> None:
    noon = datetime(2024, 5, 17, 12, tzinfo=UTC).timestamp()
    berlin = datetime(2024, 5, 17, 14, tzinfo=timezone(timedelta(hours=2)))
    values = ["2024-05-17T12:00:00", "2024-05-17 12:00:00Z", "2024-05-17T14:00:00+02:00", berlin]
    assert [seconds_of(value, MISSING) for value in values] == [noon] * 4
    assert TableReader.parse(values, "date", MISSING).tolist() == [noon] * 4
    assert seconds_of(date(1970, 1, 2), MISSING) == seconds_of("1970-01-02", MISSING) == 86_400
    assert math.isnan(seconds_of("?", MISSING))


@pytest.mark.parametrize(
    ("moment", "cycle", "share"),
    [
        ("2024-01-01", "year", 0.0),
        ("2024-12-31T12:00:00", "year", 365.5 / 366),
        ("2023-07-02T12:00:00", "year", 0.5),
        ("1969-12-31", "year", 364 / 365),
        ("2024-05-13", "week", 0.0),  # a Monday
        ("2024-05-19T18:00:00", "week", 6.75 / 7),
        ("1969-12-29", "week", 0.0),
        ("2024-05-17T18:00:00", "day", 0.75),
        ("1960-05-17T06:00:00", "day", 0.25),
    ],
)
def test_cycles(moment: str, cycle: str, share: float) -> None:
    assert cycle_share(np.array([seconds_of(moment, MISSING)]), cycle)[0] == pytest.approx(share, abs=1e-12)
