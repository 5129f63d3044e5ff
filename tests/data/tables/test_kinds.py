"""What the values of a column are taken for, and which foreign forms are named."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from src.data.tables.kinds import Kind, foreign_form, infer_kind

MISSING = frozenset({"", "?", "NA"})


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2.5", "-3e4"], "number"),
        ([1, 2, None, Decimal("0.5")], "number"),
        ([*map(str, range(18)), "many", "few"], "number"),
        ([*map(str, range(17)), "many", "few"], "category"),
        (["1_000", "2_000"], "category"),
        (["01067", "80331"], "category"),
        ([True, False, None], "category"),
        ([True, 1, 0], "number"),
        (["red", "green", "red"], "category"),
        (["2024-05-17", "2024-05-18 12:00:00", "?"], "date"),
        ([date(2024, 5, 17), datetime(2024, 5, 18, 3)], "date"),
        ([*(f"2024-05-{day:02d}" for day in range(1, 19)), "soon", "2024-05-32"], "date"),
        ([f"name {number}" for number in range(21)], "text"),
        ([f"name {number}" for number in range(20)], "category"),
        ([f"name {number % 30}" for number in range(60)], "category"),
        ([f"name {number % 31}" for number in range(60)], "text"),
        (["1", "1.0", " 1"], "constant"),
        (["1", "", "1"], "number"),
        (["", "NA", None, float("nan")], "empty"),
        ([[1], [2]], "text"),
        ([{"a": 1}, None], "text"),
        ([b"a", b"b"], "text"),
    ],
)
def test_kinds(values: list[Any], kind: Kind) -> None:
    assert infer_kind(values, MISSING) == kind


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1,5", "22,75", "?"], "numbers"),
        (["1.234,50", "-2.000,00"], "numbers"),
        (["1,234", "12"], "numbers"),
        (["12 %", "7.5%"], "numbers"),
        (["$5", "€1 200"], "numbers"),
        (["17.05.2024", "1.6.2024"], "dates"),
        (["5/17/2024", "5/18/24 12:00"], "dates"),
        (["2024/05/17", "2024/05/18"], "dates"),
    ],
)
def test_foreign_forms(values: list[str], expected: str) -> None:
    form = foreign_form(values, MISSING)
    assert form is not None
    assert form[0].startswith(expected)
    assert form[1] == values[0]


@pytest.mark.parametrize(
    "values",
    [["red", "1,5"], ["01067", "80331"], ["192.168.0.1"], ["1.2.3"], ["10-20"], ["1.5", "1.5"], [True, None], ["?"]],
)
def test_what_is_in_no_foreign_form(values: list[Any]) -> None:
    assert foreign_form(values, MISSING) is None
