"""Tables of series in files, or in bytes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from playbook import UserError, csv_rows, decode_text
from src.data.notices import name_some
from src.data.row_files import SUFFIXES, Form, read_rows
from src.data.series.columns import Row, category_of
from src.data.split_files import check_root

STANDARD_INPUT = "standard input"


def find_table(root: Path) -> Path:
    """The table that the option `root` means: a file, or the only one in a folder.

    Raises:
        UserError: there is none, or several.
    """
    check_root(root)
    if root.is_dir():
        files = [file for file in sorted(root.iterdir()) if file.suffix.lower() in SUFFIXES and file.is_file()]
        if len(files) != 1:
            has = name_some([file.name for file in files]) if files else "none"
            raise UserError(f"--data.root {root.as_posix()}: expected one file of {', '.join(SUFFIXES)}, got {has}")
        return files[0]
    return root


def read_table(file: Path, form: Form, warn: Callable[[str], Any]) -> tuple[list[Row], list[tuple[str, str]]]:
    """Reads a table.

    Args:
        file: a .csv, .tsv, .jsonl or .parquet.
        form: how it is written.
        warn: called with a sentence about fields that look like several rows.

    Returns:
        The rows, and place and sentence of each one that cannot be read.
    """
    name = file.as_posix()
    rows, problems = [], []
    for line, row in read_rows(file, form, None, warn):
        place = f"{name}:{line}"
        if isinstance(row, str):
            problems.append((place, f"{place}: {row}"))
        else:
            rows.append(Row(place, row))
    return rows, problems


def read_bytes(content: bytes, form: Form) -> list[Row]:
    """Reads a CSV that is no file.

    Args:
        content: its bytes.
        form: how it is written.

    Raises:
        UserError: it has no rows, or one of another length.
    """
    place = STANDARD_INPUT
    table = list(csv_rows(place, decode_text(content, place, form.encoding), form.separator or ","))
    names = [name.strip() for name in table[0][1]] if table else []
    if not form.header:
        names = [str(number) for number in range(1, len(names) + 1)]
    body = table[1:] if form.header else table
    if not body:
        raise UserError(f"{place}: is empty, expected rows")
    if other := next((row for row in body if len(row[1]) != len(names)), None):
        raise UserError(f"{place}:{other[0]}: expected {len(names)} fields, got {len(other[1])}")
    return [Row(f"{place}:{line}", dict(zip(names, fields, strict=True))) for line, fields in body]


def group_rows(rows: Sequence[Row], column: str | None, default_name: str) -> dict[str, list[Row]]:
    """The rows of each series.

    Args:
        rows: the table.
        column: that with the name of the series; None if the table has one series.
        default_name: its name.
    """
    if column is None:
        return {default_name: list(rows)}
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(category_of(row.values.get(column)), []).append(row)
    return groups
