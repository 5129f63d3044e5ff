"""Rows of a table as they are in files."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from playbook import Data
from src.data.notices import refuse, warn
from src.data.row_files import Form, read_rows


@dataclass
class Rows:
    """Rows of a table.

    Args:
        places: of each row, such as data/train.csv:17, for messages.
        values: of each column, raw.
    """

    places: list[str]
    values: dict[str, list[Any]]

    def __len__(self) -> int:
        return len(self.places)

    @property
    def names(self) -> list[str]:
        """Names of the rows without their folder, such as train.csv:17."""
        return [place.rpartition("/")[2] for place in self.places]

    def contents(self, columns: Sequence[str]) -> list[int]:
        """A hash of the values of each row, the same for equal rows."""
        rows = zip(*(self.values[name] for name in columns), strict=True)
        try:
            return list(map(hash, rows))
        except TypeError:  # lists and dicts of JSON
            return [hash(repr(row)) for row in zip(*(self.values[name] for name in columns), strict=True)]

    def take(self, indices: Sequence[int] | np.ndarray) -> "Rows":
        columns = {name: [values[index] for index in indices] for name, values in self.values.items()}
        return Rows([self.places[index] for index in indices], columns)


def read_files(data: Data, files: Sequence[Path], form: Form) -> Rows:
    """Reads the rows of the files of one split.

    Args:
        data: that reads them.
        files: parts of a table.
        form: how they are written.

    Raises:
        UserError: a file or a row cannot be read.
    """
    places: list[str] = []
    columns: dict[str, list[Any]] = {}
    problems: list[tuple[str, str]] = []
    for file in files:
        name = file.as_posix()
        for line, row in read_rows(file, form, None, partial(warn, data)):
            place = f"{name}:{line}"
            if isinstance(row, str):
                problems.append((place, f"{place}: {row}"))
                continue
            if row.keys() != columns.keys():  # in JSON lines, not all rows name all columns
                columns |= {column: [None] * len(places) for column in row if column not in columns}
            for column, values in columns.items():
                values.append(row.get(column))
            places.append(place)
    refuse(data, problems, len(places))
    return Rows(places, columns)
