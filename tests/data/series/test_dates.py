"""Dates as people write them."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from playbook import UserError
from src.data.series.dates import is_month_first, parse_time

EXPECTED = int(datetime(2017, 10, 3, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2017-10-03", 0),
        ("2017/10/03", 0),
        ("2017/10/3 7:05", 7 * 3600 + 300),
        ("2017-10-03T07:05:09", 7 * 3600 + 309),
        (" 2017-10-03 07 ", 7 * 3600),
        ("03.10.2017", 0),
        ("3.10.2017 7:05", 7 * 3600 + 300),
        ("2017-10", -2 * 86_400),
        ("2017", -275 * 86_400),
        ("20171003", 0),
        ("20171003 07:05", 7 * 3600 + 300),
        (20171003, 0),
        ("2017-Q4", -2 * 86_400),
        ("2017Q4", -2 * 86_400),
        ("2017 Q4", -2 * 86_400),
        ("2017-W40", -86_400),
        ("1949-10", -24_839 * 86_400),
        (date(2017, 10, 3), 0),
        (datetime(2017, 10, 3, 1), 3600),
    ],
)
def test_dates_without_a_zone(text: object, seconds: int) -> None:
    assert parse_time(text) == (EXPECTED + seconds, "")


@pytest.mark.parametrize(("text", "zone"), [("Z", "+00:00"), ("+02:00", "+02:00"), ("-0330", "-03:30")])
def test_a_zone_keeps_the_clock(text: str, zone: str) -> None:
    assert parse_time(f"2017-10-03 07:00{text}") == (EXPECTED + 7 * 3600, zone)


def test_a_moment_with_a_zone() -> None:
    assert parse_time(datetime(2017, 10, 3, tzinfo=timezone(timedelta(hours=1)))) == (EXPECTED, "+01:00")


def test_slashes_by_the_numbers_above_12() -> None:
    assert is_month_first(["10/3/2017", "10/13/2017"]) is True
    assert is_month_first(["3/10/2017", "13/10/2017"]) is False
    assert is_month_first(["3/10/2017", "2017-10-13"]) is None
    assert parse_time("10/3/2017", month_first=True)[0] == EXPECTED
    assert parse_time("3/10/2017", month_first=False)[0] == EXPECTED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a date such as"),
        ("yesterday", "expected a date such as .* got 'yesterday'"),
        ("2017-13-01", "expected a date"),
        ("2017-02-29", "expected a date"),
        ("31.5", "expected a date"),
        ("2017-Q5", "expected a date"),
        ("2017-W53", "expected a date"),
        ("20171303", "expected a date"),
        ("1577836800", "got '1577836800', which may be seconds since 1970"),
        ("2017-10-03 25:00", "expected a date"),
        ("3/10/2017", "may begin with the day or the month, expected dates such as 2017-12-31"),
        ("2017-10-03 07:00:00.5", "expected whole seconds"),
    ],
)
def test_no_date(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_time(text)
