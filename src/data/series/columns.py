"""What the columns of a table mean, and the values in their fields."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from playbook import UserError, named_separator, nearest
from src.data.series.dates import parse_time

TIMES = ("ds", "date", "time", "timestamp", "datetime")
SERIES, TARGET = "unique_id", "y"
MISSING = ("", "nan", "na", "n/a", "null", "none", "<na>")
LARGEST = 1e30  # of a number; its square has to fit into float64, and itself into float32


class Columns(NamedTuple):
    """What the columns of a table mean.

    Args:
        time: points in time.
        series: name of the series; None if the table has one.
        target: what is forecast.
        past: covariates that are known up to the origin of a forecast.
        known: covariates that are known in advance.
        static: covariates with one value a series.
        time_zone: offset of the times from UTC, empty if they have none; None if it is not known yet.
        month_first: whether dates with slashes begin with the month; None if it is not known.
    """

    time: str
    series: str | None
    target: list[str]
    past: list[str]
    known: list[str]
    static: list[str]
    time_zone: str | None = None
    month_first: bool | None = None


class Row(NamedTuple):
    """A row with its place, as in file.csv:17."""

    place: str
    values: Mapping[str, Any]


def is_missing(value: Any) -> bool:
    """Whether a field has no value: it is empty, NaN or null."""
    return value is None or (isinstance(value, float) and math.isnan(value)) or str(value).strip().lower() in MISSING


def number_of(value: Any) -> float:
    """The number in a field, NaN if it is missing.

    Raises:
        ValueError: it is none, infinite or very large.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        if is_missing(value):
            return math.nan
        raise
    if abs(number) > LARGEST:
        raise ValueError(value)
    return number


def category_of(value: Any) -> str:
    """The text in a field of categories or names, empty if it is missing; NA is a text, as of a region."""
    is_empty = value is None or (isinstance(value, float) and math.isnan(value))
    return "" if is_empty else str(value).strip()


def is_numeric(values: Iterable[Any]) -> bool:
    """Whether most of the fields that are not missing are numbers."""
    fields = [value for value in values if not is_missing(value)]
    return sum(map(_is_number, fields)) * 2 > len(fields)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):  # a category, as the words True and False in a CSV
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def find_columns(rows: Sequence[Row], wanted: Mapping[str, Any], tell: Callable[[str], Any]) -> Columns:
    """Finds out what the columns of a table mean.

    Args:
        rows: the table.
        wanted: options of the data by name: time, target, series and the lists of covariates.
        tell: called with a sentence about columns that are left out.

    Raises:
        UserError: the table lacks a column; the message has the nearest name.
    """
    first = rows[0]
    has = list(first.values)
    options = {option: _listed(value) for option, value in wanted.items()}
    for option, names in options.items():
        for name in names:
            _require_column(has, name, option)
    time = wanted["time"] or _time_column(first, [name for names in options.values() for name in names])
    series = wanted["series"] or (SERIES if SERIES in has else None)
    past, known, static = (options[f"{kind}_covariates"] for kind in ("past", "known", "static"))
    named = [time, *_listed(series), *options["target"], *past, *known, *static]
    if twice := [name for name in named if named.count(name) > 1]:
        raise UserError(f"--data: column {twice[0]} has two purposes, expected one of time, series, target, covariate")
    free = [name for name in has if name not in named]
    target = options["target"] or ([TARGET] if TARGET in free else _number_columns(rows, free))
    if not target or (series and not options["target"] and len(target) > 1):
        candidates = f"the columns of numbers {', '.join(target)}" if target else f"{', '.join(has)}"
        raise UserError(f"--data.target: {first.place}: expected a column {TARGET}, or the option, got {candidates}")
    others = [name or "''" for name in free if name not in target]
    if others and not options["target"]:  # who names the target has chosen
        tell(f"columns without a purpose are not read: {', '.join(others)}")
    return Columns(time, series, target, past, known, static)


def _listed(value: str | Sequence[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())


def _number_columns(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """Columns of numbers, without the index that pandas writes."""
    names = [name for name in names if name not in ("", "Unnamed: 0")]
    return [name for name in names if is_numeric(row.values.get(name) for row in rows)]


def _require_column(has: Sequence[str], name: str, option: str) -> None:
    """Checks that a table has a column.

    Raises:
        UserError: it does not.
    """
    if name not in has:
        sign = named_separator(has, [name])
        hint = f'; expected --data.separator "{sign}"' if sign else nearest(name, has)
        raise UserError(f"--data.{option}: expected a column {name}, got {', '.join(has)}{hint}")


def require_columns(row: Row, names: Sequence[str]) -> None:
    """Checks that a table has the columns that the training had; others do not matter.

    Raises:
        UserError: one is missing.
    """
    for name in names:
        if name not in row.values:
            near = nearest(name, row.values)
            raise UserError(f"{row.place}: expected a column {name}, as in training, got {', '.join(row.values)}{near}")


def _time_column(row: Row, others: Sequence[str]) -> str:
    """The column with a usual name, or else the first one, if it has a date."""
    lower = {name.lower(): name for name in row.values if name not in others}
    if known := next((lower[name] for name in TIMES if name in lower), None):
        return known
    first = next(iter(row.values))  # as in Month, Passengers
    try:
        parse_time(row.values[first], month_first=True)
    except UserError:
        has = list(row.values)
        sign = named_separator(has, TIMES)
        hint = (
            f'; expected --data.separator "{sign}"'
            if sign
            else next(filter(None, (nearest(t, has) for t in TIMES)), "")
        )
        raise UserError(
            f"--data.time: {row.place}: expected a column {', '.join(TIMES[:-1])} or {TIMES[-1]}, or the option, "
            f"got {', '.join(has)}{hint}"
        ) from None
    return first
