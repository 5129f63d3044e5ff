"""Finds the inputs of `predict --input`: files, or rows of text."""

import glob
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from playbook.data.files import files_below
from playbook.data.tables import csv_rows, parse_json, tsv_rows
from playbook.errors import UserError, nearest

COLUMNS = ("path", "file", "image", "filename", "file_name")  # of a list, the first of these that it has
LISTS = (".csv", ".tsv", ".jsonl", ".txt")


class Sources:
    """Inputs and their names.

    Args:
        names: names in the table: paths relative to the input, or file and line of a row.
        places: paths, bytes from standard input, or rows, which are text or dicts.
    """

    def __init__(self, names: Sequence[str], places: Sequence[Any]) -> None:
        self.names = names
        self.places = places

    def __len__(self) -> int:
        return len(self.names)


def find_sources(spec: str, formats: Sequence[str], columns: Sequence[str] = (), header: bool = True) -> Sources:
    """Finds the inputs of an option.

    Args:
        spec: a file, a folder, a glob, a list (.csv, .tsv, .jsonl or .txt) or - for standard input. A list has one path
            per row; standard input is one file, or one path per line.
        formats: suffixes of the files to read from a folder; if empty, all files.
        columns: for data that reads rows, such as texts, the names of the columns that it reads. Rows of a list and
            lines of standard input are then the inputs themselves.
        header: whether the first row of a table always names its columns. If false, it does so only if it contains a
            known name; otherwise the columns are 1, 2, ….

    Raises:
        UserError: there is nothing to read.
    """
    if not spec.strip():
        raise UserError("--input: is empty, expected a file, a folder, a glob, a list or -")
    if spec == "-":
        return _from_standard_input(bool(columns))
    path = Path(spec)
    if path.is_dir():
        files = files_below(path, formats)
        if not files:
            kinds = f" of {', '.join(formats)}" if formats else ""
            raise UserError(f"--input {spec}: the folder contains no files{kinds}")
        return Sources([file.relative_to(path).as_posix() for file in files], files)
    if path.is_file():
        if path.suffix.lower() not in LISTS:
            return Sources([path.name], [path])
        return _rows_of(path, columns, header) if columns else _paths_in(path)
    if glob.has_magic(spec):
        files = sorted(Path(name) for name in glob.glob(spec, recursive=True) if Path(name).is_file())
        if not files:
            raise UserError(f"--input {spec}: no file matches")
        fixed = Path(*_fixed_parts(path))
        return Sources([file.relative_to(fixed).as_posix() for file in files], files)
    siblings = [entry.as_posix() for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    hint = "; to pass a text itself, use standard input with --input -" if columns else ""
    raise UserError(f"--input {spec}: no such file or folder{nearest(spec, siblings)}{hint}")


def _fixed_parts(pattern: Path) -> list[str]:
    """The folders of a glob before its first wildcard."""
    parts: list[str] = []
    for part in pattern.parts[:-1]:
        if glob.has_magic(part):
            break
        parts.append(part)
    return parts


def _paths_in(file: Path) -> Sources:
    """Paths in a list, relative to its folder or else to the working directory."""
    entries = []
    for place, row in _read_list(file):
        value = row
        if isinstance(row, dict):
            column = _column(place, list(row))
            value = row[column]
            if isinstance(value, str) and not value.strip():
                raise UserError(f"{place}: {column} is empty")
        if not isinstance(value, str):
            raise UserError(f"{place}: expected the path of a file, got {value!r}")
        entries.append(value.strip())
    return Sources(entries, [_beside(file, entry) for entry in entries])


def _beside(file: Path, entry: str) -> Path:
    """The path of an entry of a list: relative to the list, or where there is nothing, to the working directory."""
    path = file.parent / entry
    return path if path.exists() or not Path(entry).exists() else Path(entry)


def _rows_of(file: Path, columns: Sequence[str], header: bool) -> Sources:
    """Rows of a list as they are; where it has none of the columns but one of paths, the files that it names."""
    names, rows = [], []
    known = None if header else [name for name in (*columns, *COLUMNS) if not name.isdecimal()]
    for place, row in _read_list(file, known):
        if isinstance(row, dict) and not any(column in row for column in columns):
            if any(column in row for column in COLUMNS):
                return _paths_in(file)
            has = ", ".join(row) or "none"
            raise UserError(f"{place}: expected a column {' or '.join(columns)}, got {has}{nearest(has, columns)}")
        if not isinstance(row, str | dict):
            raise UserError(f"{place}: expected a text or a row with {' or '.join(columns)}, got {row!r:.80}")
        names.append(f"{file.name}:{place.rpartition(':')[2]}")
        rows.append(row)
    return Sources(names, rows)


def _read_list(file: Path, known: Sequence[str] | None = None) -> Iterator[tuple[str, Any]]:
    """Rows of a list, each with the words for its place, such as `--input list.csv:3`.

    Lines of a .txt are text, rows of a table are dicts, and lines of JSON are what they are. A table without one of the
    known names in its first row has no header; every table has one if known is None.
    """
    name = f"--input {file.as_posix()}"
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: is not text in UTF-8: {error}") from error
    suffix = file.suffix.lower()
    if not text.strip():
        raise UserError(f"{name}: the list is empty")
    if suffix in (".csv", ".tsv"):
        yield from _table(name, csv_rows(name, text) if suffix == ".csv" else tsv_rows(text), known)
        return
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines: JSON may hold other separators
        if line.strip():
            yield f"{name}:{number}", _json(f"{name}:{number}", line) if suffix == ".jsonl" else line.rstrip("\r")


def _table(
    name: str, rows: Iterator[tuple[int, list[str]]], known: Sequence[str] | None
) -> Iterator[tuple[str, dict[str, str]]]:
    first = next(rows)
    columns = [column.strip() for column in first[1]]
    if known is not None and not set(columns) & set(known):
        columns = [str(number) for number in range(1, len(columns) + 1)]
        rows = chain([first], rows)
    is_empty = True
    for line, fields in rows:
        is_empty = False
        pairs = zip_longest(columns, fields[: len(columns)], fillvalue="")
        yield f"{name}:{line}", {column: value for column, value in pairs if column}
    if is_empty:
        raise UserError(f"{name}: the list is empty")


def _json(place: str, line: str) -> Any:
    try:
        return parse_json(line)
    except ValueError as error:
        raise UserError(f"{place}: is not valid JSON: {error}") from error


def _column(place: str, header: list[str]) -> str:
    column = next((column for column in COLUMNS if column in header), None)
    if column is None:
        has = ", ".join(header) or "none"
        raise UserError(f"{place}: expected a column {', '.join(COLUMNS[:-1])} or {COLUMNS[-1]} of paths, got {has}")
    return column


def _from_standard_input(reads_rows: bool) -> Sources:
    content = sys.stdin.buffer.read()
    if not content.strip():
        kind = "one text per line" if reads_rows else "a file, or one path per line"
        raise UserError(f"--input -: standard input is empty, expected {kind}")
    try:
        lines = [line.rstrip("\r") for line in content.decode("utf-8-sig").split("\n")]
    except UnicodeDecodeError:
        return Sources(["-"], [content])
    if "\0" in lines[0]:
        return Sources(["-"], [content])
    filled = {number: line for number, line in enumerate(lines, start=1) if line.strip()}
    if reads_rows:
        return Sources([f"stdin:{number}" for number in filled], list(filled.values()))
    paths = [line.strip() for line in filled.values()]
    return Sources(paths, [Path(path) for path in paths])
