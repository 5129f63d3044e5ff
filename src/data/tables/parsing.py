"""Parses the columns of a table, and says which values are no numbers and dates."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from playbook import TableReader, is_missing, number_of, seconds_of
from src.data.tables.kinds import Kind
from src.data.tables.rows import Rows


class Split(NamedTuple):
    """Rows of one split that a net can be trained or tested on.

    Args:
        names: of each row.
        columns: values (B,) of each column that the net reads.
        targets: of each row (B,).
        contents: a hash of all raw values of each row, to find copies.
    """

    names: list[str]
    columns: dict[str, np.ndarray]
    targets: Tensor
    contents: list[int]

    def take(self, indices: np.ndarray) -> "Split":
        columns = {name: values[indices] for name, values in self.columns.items()}
        names, contents = ([own[index] for index in indices] for own in (self.names, self.contents))
        return Split(names, columns, self.targets[torch.from_numpy(indices)], contents)


class Parsed(NamedTuple):
    """Values of the columns of some rows.

    Args:
        columns: values (B,) of each column, as `TableReader.parse` returns them.
        problems: for the index of each row with a value that cannot be parsed, a sentence about the first one.
        notes: sentences about values that are not taken as they are.
    """

    columns: dict[str, np.ndarray]
    problems: dict[int, str]
    notes: list[str]


def parse_rows(rows: Rows, kinds: Mapping[str, Kind], missing: frozenset[str]) -> Parsed:
    """Parses columns.

    Args:
        rows: raw ones.
        kinds: number, date or category of each column to parse.
        missing: texts that stand for no value.
    """
    columns: dict[str, np.ndarray] = {}
    problems: dict[int, str] = {}
    infinite: list[str] = []
    notes: list[str] = []
    for name, kind in kinds.items():
        values = rows.values[name]
        try:
            columns[name] = TableReader.parse(values, kind, missing)
        except ValueError:  # InputError of the runtime
            columns[name] = np.full(len(rows), np.nan)
            for index, value in enumerate(values):
                try:
                    columns[name][index] = (number_of if kind == "number" else seconds_of)(value, missing)
                except ValueError as error:
                    problems.setdefault(index, f"{name}: {error}{_remedy(name, value)}")
        if kind == "number":
            absent = [int(index) for index in np.flatnonzero(np.isnan(columns[name])) if index not in problems]
            infinite += [
                f"{rows.places[index]}: {name} {values[index]}"
                for index in absent
                if not is_missing(values[index], missing)
            ]
        elif kind == "date" and len(zones := _zones(values, missing, problems)) > 1:
            form = "with and without a time zone" if None in zones else f"with {len(zones)} offsets from UTC"
            notes.append(f"{name} has times {form}; all are converted to UTC, and those without one count as UTC")
    if infinite:
        numbers = "1 infinite number counts" if len(infinite) == 1 else f"{len(infinite):,} infinite numbers count"
        notes.append(f"{numbers} as missing, such as {infinite[0]}")
    return Parsed(columns, problems, notes)


def _zones(values: list[Any], missing: frozenset[str], problems: Mapping[int, str]) -> set[Any]:
    """Offsets from UTC of the dates of a column; None for those without a time zone."""
    present = [value for i, value in enumerate(values) if i not in problems and not is_missing(value, missing)]
    texts = {str(value).strip() for value in present}
    return {datetime.fromisoformat(text).utcoffset() for text in texts}


def _remedy(name: str, value: Any) -> str:
    return f"; --data.missing+ {str(value).strip()!r} reads it as no value, --data.categorical {name} all as categories"
