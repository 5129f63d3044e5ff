"""Points in time that are written in a table."""

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime

from playbook import UserError

SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})(.*)", re.DOTALL)  # month or day first
DOTTED = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(.*)", re.DOTALL)  # day first
YEAR_FIRST = re.compile(r"(\d{4})(?:[-/.](\d{1,2})(?:[-/.](\d{1,2}))?)?((?:[ T]|$).*)", re.DOTALL)
COMPACT = re.compile(r"(\d{4})(\d\d)(\d\d)((?:[ T]|$).*)", re.DOTALL)
QUARTER = re.compile(r"(\d{4})[- ]?Q([1-4])")
WEEK = re.compile(r"(\d{4})-?W(\d\d)")  # of ISO 8601, which begins on a Monday
EXAMPLES = "2017-10-20, 2017-10-20 07:00:00, 2017-Q4 or 2017-W42"


def is_month_first(values: Iterable[str]) -> bool | None:
    """Whether dates with slashes begin with the month, by the numbers above 12; None if they do not tell."""
    pairs = [(int(match[1]), int(match[2])) for value in values if (match := SLASHED.fullmatch(value.strip()))]
    if any(second > 12 for _, second in pairs):
        return True
    return False if any(first > 12 for first, _ in pairs) else None


def parse_time(value: object, month_first: bool | None = None) -> tuple[int, str]:
    """Reads a date, with or without a time of day.

    Args:
        value: text, such as 2017-10-20, 2017-10-20T07:00Z, 20171020, 2017-10, 2017-Q4, 2017-W42, 2017, 20.10.2017 07:00
            or 10/20/2017; or a date. A month, a quarter, a week or a year means its first day.
        month_first: whether dates with slashes begin with the month; None if that is not known.

    Returns:
        Seconds since 1970 in the time zone in which it is written, and that zone, such as +02:00; empty without one.

    Raises:
        UserError: it is none, a fraction of a second, or ambiguous.
    """
    moment = value if isinstance(value, datetime) else _moment(value, month_first)
    if moment.microsecond:
        raise UserError(f"expected whole seconds, got {value}")
    offset = moment.utcoffset()
    zone = "" if offset is None else moment.strftime("%z")
    seconds = int(moment.replace(tzinfo=UTC).timestamp())
    return seconds, f"{zone[:3]}:{zone[3:5]}" if zone else ""


def _moment(value: object, month_first: bool | None) -> datetime:
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    text = str(value).strip()
    if match := QUARTER.fullmatch(text):
        year, month, day, rest = match[1], int(match[2]) * 3 - 2, 1, ""
    elif match := YEAR_FIRST.fullmatch(text) or COMPACT.fullmatch(text):
        year, month, day, rest = match.groups()
    elif match := DOTTED.fullmatch(text):
        day, month, year, rest = match.groups()
    elif match := SLASHED.fullmatch(text):
        month, day, year, rest = match.groups()
        if month_first is None:
            raise UserError(f"{text!r} may begin with the day or the month, expected dates such as {year}-12-31")
        if not month_first:
            day, month = month, day
    elif match := WEEK.fullmatch(text):
        try:
            return datetime.fromisocalendar(int(match[1]), int(match[2]), 1)
        except ValueError as error:
            raise _no_date(text) from error
    else:
        raise _no_date(text)
    try:
        return datetime.fromisoformat(f"{year}-{int(month or 1):02}-{int(day or 1):02}{_clock(rest)}")
    except ValueError as error:
        raise _no_date(text) from error


def _no_date(text: str) -> UserError:
    hint = ", which may be seconds since 1970" if text.isdecimal() and len(text) > 8 else ""
    return UserError(f"expected a date such as {EXAMPLES}, got {text!r:.60}{hint}")


def _clock(rest: str) -> str:
    """A time of day in ISO's form; hours may have one digit."""
    clock = rest.strip().removeprefix("T").strip()
    if re.match(r"\d:", clock):
        clock = f"0{clock}"
    return f"T{clock}".replace(" ", "") if clock else ""
