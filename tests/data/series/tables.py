"""Tables of series for the tests of this folder."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from src.data.series.series import Series

START = datetime(2020, 1, 6)  # a Monday
Table = dict[str, Any]  # columns


def hours(count: int, start: datetime = START) -> list[str]:
    return [str(start + timedelta(hours=hour)) for hour in range(count)]


def days(count: int, start: datetime = START) -> list[str]:
    return [str((start + timedelta(days=day)).date()) for day in range(count)]


def long_table(lengths: Mapping[str, int]) -> Table:
    """Daily series, in which y is 100 · the number of the series + the number of the row."""
    table: Table = {"unique_id": [], "ds": [], "y": []}
    for number, (name, length) in enumerate(lengths.items()):
        table["unique_id"] += [name] * length
        table["ds"] += days(length)
        table["y"] += [100 * number + row for row in range(length)]
    return table


def write(file: Path, table: Mapping[str, Sequence[Any]], separator: str = ",") -> Path:
    lines = [separator.join(table)]
    lines += [separator.join(map(str, row)) for row in zip(*table.values(), strict=True)]
    file.write_text("\n".join(lines) + "\n")
    return file


def prepared(file: Path, facts: Mapping[str, Any] | None = None, **options: Any) -> Any:
    settings: dict[str, Any] = {"look_back": 4, "horizon": 2} | options
    data = Series(str(file), **settings)
    if facts is not None:
        data.facts = dict(facts)
        data.has_trained = True
    data.setup("fit")
    return data
