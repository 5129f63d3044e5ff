"""Reads rows of a table as numbers and categories."""

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from statistics import NormalDist
from typing import Any

import numpy as np

from .errors import InputError, Sample, shorten

UNSEEN = 0  # code of a category that training did not have
EDGE = 1e-7  # share below which numbers are cut before the inverse of the normal distribution, as in scikit-learn
LARGEST = 1e6  # of a scaled number, which float32 and a net take
DAY_S = 86_400
MOST_NAMED = 20  # columns in a message
LONGEST_NAME = 60
MOST_COMPARED = 200  # columns of a row that may be a misspelt one


class TableReader:
    """Encodes rows as the columns say, which training has fitted.

    Args:
        plan: `columns`, each with its `name` and `kind`:
            number, with `fill` in place of missing values, then `quantiles` (to a standard normal), or `center` and
            `scale`; date, with the `parts` of it (time and cycles), `fill` in seconds, `center` and `scale`; category,
            with `codes`, its values from code 1 on. Numbers and dates with `indicates` are also a category: whether
            they are missing.
            And `missing`, texts that stand for no value.
    """

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.columns: list[Mapping[str, Any]] = [
            {name: np.asarray(value) if name == "quantiles" else value for name, value in column.items()}
            for column in plan["columns"]
        ]
        self.missing = frozenset(plan["missing"])
        self.codes = {
            column["name"]: {value: code for code, value in enumerate(column["codes"], start=1)}
            for column in self.columns
            if column["kind"] == "category"
        }

    @property
    def names(self) -> list[str]:
        return [column["name"] for column in self.columns]

    def __call__(self, source: Any) -> Sample:
        """Reads a row, a dict by column: numbers (N,) and categories (M,).

        Raises:
            InputError: a column is missing, or a value cannot be read.
        """
        encoded = self.encode({name: [value] for name, value in select_columns(source, self.names).items()})
        return Sample({name: values[0] for name, values in encoded.items()})

    def encode(self, rows: Mapping[str, Sequence[Any]]) -> dict[str, np.ndarray]:
        """Encodes the values of each column: numbers (B, N) float32 and categories (B, M) int64, if there are any.

        Raises:
            InputError: a value cannot be read.
        """
        parsed = {}
        for column in self.columns:
            name = column["name"]
            try:
                parsed[name] = self.parse(rows[name], column["kind"], self.missing)
            except InputError as error:
                raise InputError(f"{name}: {error}") from error
        return self.encode_parsed(parsed)

    @staticmethod
    def parse(values: Sequence[Any], kind: str, missing: frozenset[str]) -> np.ndarray:
        """Numbers, dates in seconds since 1970 (NaN where they are missing), or categories as text (empty), (B,).

        Raises:
            InputError: a value cannot be read.
        """
        return {"number": _parse_numbers, "category": _parse_categories, "date": _parse_dates}[kind](values, missing)

    def encode_parsed(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Encodes the values (B,) of each column that `parse` returned."""
        numbers: list[np.ndarray] = []
        categories: list[np.ndarray] = []
        for column in self.columns:
            own = values[column["name"]]
            if column["kind"] == "category":
                codes = self.codes[column["name"]]
                categories.append(np.array([codes.get(text, UNSEEN) for text in own], dtype=np.int64))
                continue
            absent = np.isnan(own)
            filled = np.where(absent, column["fill"], own)
            numbers += scaled(filled, column) if column["kind"] == "number" else date_parts(filled, column)
            if column["indicates"]:
                categories.append(absent.astype(np.int64) + 1)
        encoded = {}
        if numbers:
            encoded["numbers"] = np.stack(numbers, axis=1).astype(np.float32)
        if categories:
            encoded["categories"] = np.stack(categories, axis=1)
        return encoded


def select_columns(row: Any, names: Sequence[str]) -> dict[str, Any]:
    """The values that a row has in some columns; others are left out.

    Raises:
        InputError: it is no row, or lacks one of them.
    """
    if not isinstance(row, Mapping):
        raise InputError(f"expected a row with the columns {_listed(names)}, got {shorten(row)}")
    if absent := [name for name in names if name not in row]:
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        compared = [str(name)[:LONGEST_NAME] for name in islice(row, MOST_COMPARED)]
        close = difflib.get_close_matches(absent[0], compared, n=1)
        hint = f". Nearest: {close[0]}" if close else ""
        raise InputError(f"expected a column {absent[0]}{more}, got {_listed(row) or 'none'}{hint}")
    return {name: row[name] for name in names}


def _listed(names: Iterable[Any]) -> str:
    names = list(names)
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(str(name)[:LONGEST_NAME] for name in names[:MOST_NAMED]) + more


def _parse_numbers(values: Sequence[Any], missing: frozenset[str]) -> np.ndarray:
    absent = missing | {None}
    try:  # 0.1 µs a value, in place of 0.6
        if any(type(value) is str and "_" in value for value in values):
            raise ValueError
        numbers = np.array([math.nan if value in absent else float(value) for value in values], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.array([number_of(value, missing) for value in values], dtype=np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _parse_categories(values: Sequence[Any], missing: frozenset[str]) -> np.ndarray:
    distinct, index = _distinct(values)
    return np.array([category_of(value, missing) for value in distinct], dtype=object)[index]


def _parse_dates(values: Sequence[Any], missing: frozenset[str]) -> np.ndarray:
    distinct, index = _distinct(values)
    return np.array([seconds_of(value, missing) for value in distinct], dtype=np.float64)[index]


def _distinct(values: Sequence[Any]) -> tuple[list[Any], np.ndarray]:
    """The distinct values of a column, and of each value (B,) the index into them."""
    types = set(map(type, values)) - {str, type(None)}
    # 1, 1.0 and True are equal but not the same text, and lists have no hash
    is_plain = not types or (len(types) == 1 and types <= {int, float, bool})
    keys: Sequence[Any] = values if is_plain else [(type(value), repr(value)) for value in values]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    index = np.array([numbers[key] for key in keys], dtype=np.int64)
    return list(numbers) if is_plain else [values[i] for i in np.unique(index, return_index=True)[1]], index


def is_missing(value: Any, missing: frozenset[str]) -> bool:
    """Whether a raw value stands for no value: none at all, not a number, or one of some texts."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return isinstance(value, str) and value.strip() in missing


def number_of(value: Any, missing: frozenset[str]) -> float:
    """A number; NaN for a missing or infinite one.

    Raises:
        InputError: it is none.
    """
    if is_missing(value, missing):
        return math.nan
    try:
        number = float(value.replace("_", "?") if isinstance(value, str) else value)  # Python reads 1_000 as a number
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"expected a number, got {shorten(value)}") from error
    return number if math.isfinite(number) else math.nan


def category_of(value: Any, missing: frozenset[str]) -> str:
    """A category as text, the same for 1, 1.0 and "1", and for true and "True"; empty for a missing one."""
    if is_missing(value, missing):
        return ""
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        return text.lower()
    if text[:1] == "0" and text.isdecimal():  # as in postal codes
        return text
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else text


def seconds_of(value: Any, missing: frozenset[str]) -> float:
    """Seconds since 1970 of a date and time; NaN for a missing one. Those without a time zone count as UTC.

    Raises:
        InputError: it is none in ISO 8601.
    """
    if is_missing(value, missing):
        return math.nan
    try:
        # a date of Parquet is no text, but writes itself as one
        date = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
    except ValueError as error:
        raise InputError(f"expected a date such as 2024-05-17 or 2024-05-17 18:30:00, got {shorten(value)}") from error
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def scaled(values: np.ndarray, column: Mapping[str, Any]) -> list[np.ndarray]:
    """Scaled numbers (B,): to a standard normal by quantiles, or by center and scale."""
    if "quantiles" not in column:
        return [((values - column["center"]) / column["scale"]).clip(-LARGEST, LARGEST)]
    quantiles = column["quantiles"]
    shares = np.linspace(0, 1, len(quantiles))
    # of a value that many quantiles equal, the mean of the first and the last of their shares
    upper = np.interp(values, quantiles, shares)
    lower = -np.interp(-values, -quantiles[::-1], -shares[::-1])
    share = (upper + lower) / 2
    inverse = NormalDist().inv_cdf
    return [np.array([inverse(value) for value in share.clip(EDGE, 1 - EDGE)])]


def date_parts(seconds: np.ndarray, column: Mapping[str, Any]) -> list[np.ndarray]:
    """Parts of dates, (B,) each: the scaled time, and sine and cosine of the place in each cycle."""
    parts = []
    for part in column["parts"]:
        if part == "time":
            parts.append((seconds - column["center"]) / column["scale"])
            continue
        angle = 2 * np.pi * cycle_share(seconds, part)
        parts += [np.sin(angle), np.cos(angle)]
    return parts


def cycle_share(seconds: np.ndarray, cycle: str) -> np.ndarray:
    """Place of moments (B,) in the year, the week from Monday, or the day, in [0, 1)."""
    if cycle == "day":
        return (seconds % DAY_S) / DAY_S
    if cycle == "week":
        return ((seconds + 3 * DAY_S) % (7 * DAY_S)) / (7 * DAY_S)  # 1970 began on a Thursday
    times = np.floor(seconds).astype("datetime64[s]")
    begin = times.astype("datetime64[Y]")
    length = (begin + np.timedelta64(1, "Y")).astype("datetime64[s]") - begin.astype("datetime64[s]")
    return (times - begin.astype("datetime64[s]")) / length
