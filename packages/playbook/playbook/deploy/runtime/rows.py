"""Reads rows of a table from dicts and files, by the names of their columns."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import InputError, Sample
from .tables import TableReader
from .texts import rows_of


class RowReader:
    """Reads a source as the manifest's `preprocessing` says.

    Args:
        plan: as for `TableReader`; for files that are not written as usual, also `header`, `separator`, `quotes` and
            `encoding`, as for `rows_of`.
    """

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.plan = plan
        self.table = TableReader(plan)

    def __call__(self, source: Any) -> Sample:
        """Reads a row, a dict by column in any order: numbers (N,) and categories (M,).

        Raises:
            InputError: a column is missing, or a value cannot be read.
        """
        return self.table(source)

    def sources(self, file: Path) -> list[Any]:
        """The rows in a .csv, .tsv or .jsonl.

        Raises:
            InputError: it is another file, is empty or cannot be read.
        """
        if file.suffix.lower() not in (".csv", ".tsv", ".jsonl"):
            raise InputError(f"{file.as_posix()}: expected rows of a table (.csv, .tsv, .jsonl)")
        form = {name: self.plan[name] for name in ("separator", "quotes", "encoding") if name in self.plan}
        return rows_of(file, self.table.names, self.plan.get("header", True), **form)
