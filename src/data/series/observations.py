"""The rows of a table as time series: numbers in order of time, with the line of each."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from playbook import UserError
from src.data.series.columns import LARGEST, Columns, Row, category_of, number_of
from src.data.series.dates import is_month_first, parse_time
from src.ops.frequencies import names_of

Duplicates = Literal["stop", "first", "last", "mean"]


class Observations(NamedTuple):
    """A series in order of time.

    Args:
        name: of the series.
        times: seconds since 1970 (T,).
        places: file and line of each row.
        target: (T, C), NaN where it is missing.
        covariates: values (T,) of each column: numbers, or text of a column with categories.
    """

    name: str
    times: np.ndarray
    places: list[str]
    target: np.ndarray
    covariates: dict[str, np.ndarray]

    def cut(self, start: int, end: int) -> "Observations":
        """The rows of a range."""
        own = {name: values[start:end] for name, values in self.covariates.items()}
        return Observations(self.name, self.times[start:end], self.places[start:end], self.target[start:end], own)

    def select(self, is_kept: np.ndarray) -> "Observations":
        """The rows where a mask (T,) is true."""
        places = [place for place, keeps in zip(self.places, is_kept.tolist(), strict=True) if keeps]
        own = {name: values[is_kept] for name, values in self.covariates.items()}
        return Observations(self.name, self.times[is_kept], places, self.target[is_kept], own)

    @property
    def num_observed(self) -> int:
        """Number of rows up to the last one with a target."""
        rows = np.flatnonzero(~np.isnan(self.target).all(axis=1))
        return int(rows[-1]) + 1 if len(rows) else 0


class _Entry(NamedTuple):
    """The values of a row."""

    time: int
    place: str
    numbers: list[float]
    categories: list[str]


def read_series(
    rows: Sequence[Row],
    columns: Columns,
    numeric: Mapping[str, bool],
    default_name: str,
    duplicates: Duplicates,
    problem: Callable[[str, str], Any],
    tell: Callable[[str], Any],
) -> tuple[list[Observations], Columns]:
    """Puts the rows of a table in order.

    Args:
        rows: the table.
        columns: what its columns mean.
        numeric: whether each covariate is a number; otherwise it is a category.
        default_name: name of the series in a table without a column for it.
        duplicates: which of the rows with the same series and time to keep.
        problem: called with the place of a row that cannot be used, and a sentence.
        tell: called with a sentence about what is changed.

    Returns:
        The series in the order in which they begin in the table, and the columns with what was found out about times.

    Raises:
        UserError: there are two time zones, or rows with the same time, with duplicates `stop`.
    """
    month_first = columns.month_first
    if month_first is None:
        month_first = is_month_first({str(row.values.get(columns.time)) for row in rows})
    numbers = [*columns.target, *(name for name, is_number in numeric.items() if is_number)]
    categories = [name for name, is_number in numeric.items() if not is_number]
    groups: dict[str, list[_Entry]] = {}
    zone, zone_place = columns.time_zone, "training"
    times: dict[str, tuple[int, str]] = {}  # many series have the same ones
    for row in rows:
        try:
            name = default_name if columns.series is None else category_of(row.values.get(columns.series))
            if not name:
                raise UserError(f"{columns.series}: the name of the series is missing")
            text = str(row.values.get(columns.time))
            if text not in times:
                times[text] = _time(row, columns.time, month_first)
            time, own_zone = times[text]
            entry = _Entry(
                time, row.place, _numbers(row, numbers), [category_of(row.values.get(column)) for column in categories]
            )
        except UserError as error:
            problem(row.place, f"{row.place}: {error}")
            continue
        if zone is None:
            zone, zone_place = own_zone, row.place
        if own_zone != zone:
            raise UserError(
                f"--data.time: two time zones: {zone or 'none'} ({zone_place}) and {own_zone or 'none'} ({row.place}); "
                "expected one, such as UTC"
            )
        groups.setdefault(name, []).append(entry)
    num_unsorted = sum(entry.time < former.time for own in groups.values() for former, entry in pairwise(own))
    if num_unsorted:
        tell(f"sorted rows by time: {num_unsorted:,} came after a later one")
    num_dropped, series = 0, []
    for name, entries in groups.items():
        kept = _without_duplicates(name, sorted(entries, key=lambda entry: entry.time), duplicates)
        num_dropped += len(entries) - len(kept)
        series.append(_observations(name, kept, len(columns.target), numbers, categories))
    if num_dropped:
        kept_rows = "their mean" if duplicates == "mean" else f"the {duplicates} one"
        tell(f"{num_dropped:,} rows repeat the time of another one of their series: kept {kept_rows}")
    return series, columns._replace(time_zone=zone, month_first=month_first)


def _time(row: Row, column: str, month_first: bool | None) -> tuple[int, str]:
    try:
        return parse_time(row.values.get(column), month_first)
    except UserError as error:
        raise UserError(f"{column}: {error}") from error


def _numbers(row: Row, columns: Sequence[str]) -> list[float]:
    numbers = []
    for column in columns:
        try:
            numbers.append(number_of(row.values.get(column)))
        except (TypeError, ValueError):
            value = row.values.get(column)
            raise UserError(f"{column}: expected a finite number up to {LARGEST:g}, got {value!r:.40}") from None
    return numbers


def _without_duplicates(name: str, entries: list[_Entry], duplicates: Duplicates) -> list[_Entry]:
    """Keeps an entry for each time.

    Args:
        name: of the series.
        entries: in order of time.
        duplicates: which to keep.
    """
    kept = []
    for time, group in groupby(entries, key=lambda entry: entry.time):
        own = list(group)
        if len(own) == 1 or duplicates == "first":
            kept.append(own[0])
        elif duplicates == "stop":
            when = names_of(np.array([time]))[0]
            raise UserError(
                f"{own[0].place} and {own[1].place.rpartition(':')[2]}: both are {name} at {when}; "
                "expected --data.duplicates first, last or mean, or --data.series with the column that tells them apart"
            )
        elif duplicates == "last":
            kept.append(own[-1])
        else:
            kept.append(own[0]._replace(numbers=_mean([entry.numbers for entry in own])))
    return kept


def _mean(rows: Sequence[list[float]]) -> list[float]:
    """Mean of the values that are not missing, column by column."""
    columns = [[value for value in column if not math.isnan(value)] for column in zip(*rows, strict=True)]
    return [sum(column) / len(column) if column else math.nan for column in columns]


def _observations(
    name: str, entries: Sequence[_Entry], num_target: int, numbers: Sequence[str], categories: Sequence[str]
) -> Observations:
    """Arrays of the entries of a series.

    Args:
        name: of the series.
        entries: in order of time.
        num_target: number of channels, which are the first of the numbers.
        numbers: columns of numbers.
        categories: columns of categories.
    """
    table = np.array([entry.numbers for entry in entries], dtype=np.float64)  # (T, C + numbers)
    covariates = {column: table[:, i] for i, column in enumerate(numbers) if i >= num_target}
    covariates |= {column: np.array([entry.categories[i] for entry in entries]) for i, column in enumerate(categories)}
    times = np.array([entry.time for entry in entries], dtype=np.int64)
    return Observations(name, times, [entry.place for entry in entries], table[:, :num_target], covariates)
