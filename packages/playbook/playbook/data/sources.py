"""Finds the inputs of `predict --input`: files, or rows of text."""

import glob
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from playbook.data.encodings import decode_text, zeros_in
from playbook.data.files import files_below, name_others
from playbook.data.tables import csv_rows, json_array, named_separator, parquet_rows, parse_json, tsv_rows
from playbook.errors import UserError, nearest

COLUMNS = ("path", "file", "image", "filename", "file_name")  # of a list, the first of these that it has
LISTS = (".csv", ".tsv", ".jsonl", ".txt")
PARQUET = ".parquet"  # a list as well, for data that reads rows


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


def find_sources(
    spec: str,
    formats: Sequence[str],
    columns: Sequence[str] = (),
    header: bool = True,
    separator: str | None = None,
    quotes: bool = True,
    encoding: str = "",
) -> Sources:
    """Finds the inputs of an option.

    Args:
        spec: a file, a folder, a glob, a list (.csv, .tsv, .jsonl or .txt) or - for standard input. A list has one path
            per row; standard input is one file, or one path per line. A .json with an array and a .parquet are lists of
            rows as well.
        formats: suffixes of the files to read from a folder; if empty, all files.
        columns: for data that reads rows, such as texts, the names of the columns that it reads. Rows of a list and
            lines of standard input are then the inputs themselves.
        header: whether the first row of a table always names its columns. If false, it does so only if it contains a
            known name; otherwise the columns are 1, 2, ….
        separator: character between the fields of a table. Defaults to the comma for .csv and the tab for .tsv.
        quotes: whether quotes enclose fields of a .csv; otherwise they are text, as in a .tsv.
        encoding: of a list, if the data has an option for it. Defaults to UTF-8.

    Raises:
        UserError: there is nothing to read.
    """
    if not spec.strip():
        raise UserError("--input: is empty, expected a file, a folder, a glob, a list or -")
    if spec == "-":
        return _from_standard_input(bool(columns), reads_tables=".csv" in formats)
    path = Path(spec)
    if path.is_dir():
        files, others = files_below(path, formats), name_others([path], formats)[1]
        if not files:
            kinds = f" of {', '.join(formats)}" if formats else ""
            raise UserError(f"--input {spec}: the folder contains no files{kinds}{others and f', but {others}'}")
        if others:
            print(f"warning: --input {spec}: left out {others}", file=sys.stderr)
        return Sources([file.relative_to(path).as_posix() for file in files], files)
    if path.is_file():
        suffix = path.suffix.lower()
        is_array = bool(columns) and suffix == ".json" and _array(path) is not None
        is_list = suffix in LISTS or is_array or (bool(columns) and suffix == PARQUET)
        if suffix in formats or not is_list:
            return Sources([path.name], [path])
        form = _Form(separator, quotes, encoding, (*columns, *COLUMNS))
        return _rows_of(path, columns, header, form) if columns else _paths_in(path, form)
    if glob.has_magic(spec):
        files = sorted(Path(name) for name in glob.glob(spec, recursive=True) if Path(name).is_file())
        if not files:
            raise UserError(f"--input {spec}: no file matches")
        fixed = Path(*_fixed_parts(path))
        return Sources([file.relative_to(fixed).as_posix() for file in files], files)
    siblings = [entry.as_posix() for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    hint = "; to pass a text itself, use standard input with --input -" if columns else ""
    raise UserError(f"--input {spec}: no such file or folder{nearest(spec, siblings)}{hint}")


class _Form(NamedTuple):
    """How a list is written.

    Args:
        separator: character between fields; None for that of its suffix.
        quotes: whether quotes enclose fields of a .csv.
        encoding: of its text; empty for UTF-8, without an option for it.
        columns: names that must not occur twice in a header.
    """

    separator: str | None
    quotes: bool
    encoding: str
    columns: Sequence[str]


def _fixed_parts(pattern: Path) -> list[str]:
    """The folders of a glob before its first wildcard."""
    parts: list[str] = []
    for part in pattern.parts[:-1]:
        if glob.has_magic(part):
            break
        parts.append(part)
    return parts


def _paths_in(file: Path, form: _Form) -> Sources:
    """Paths in a list, relative to its folder or else to the working directory."""
    entries = []
    for place, row in _read_list(file, form):
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


def _rows_of(file: Path, columns: Sequence[str], header: bool, form: _Form) -> Sources:
    """Rows of a list as they are; where it has none of the columns but one of paths, the files that it names."""
    names, rows = [], []
    known = None if header else [name for name in (*columns, *COLUMNS) if not name.isdecimal()]
    for place, row in _read_list(file, form, known):
        if isinstance(row, dict) and not any(column in row for column in columns):
            if any(column in row for column in COLUMNS):
                return _paths_in(file, form)
            has = ", ".join(row) or "none"
            hint = _separated(row, (*columns, *COLUMNS)) or nearest(has, columns)
            raise UserError(f"{place}: expected a column {' or '.join(columns)}, got {has}{hint}")
        if not isinstance(row, str | dict):
            raise UserError(f"{place}: expected a text or a row with {' or '.join(columns)}, got {row!r:.80}")
        names.append(f"{file.name}:{place.rpartition(':')[2]}")
        rows.append(row)
    return Sources(names, rows)


def _separated(row: Mapping[str, Any], columns: Sequence[str]) -> str:
    """The option for the separator that the names in a header have between them, or nothing."""
    sign = named_separator(row, columns)
    return f'; expected --data.separator "{sign}"' if sign else ""


def _read_list(file: Path, form: _Form, known: Sequence[str] | None = None) -> Iterator[tuple[str, Any]]:
    """Rows of a list, each with the words for its place, such as `--input list.csv:3`.

    Lines of a .txt are text, rows of a table are dicts, and lines of JSON are what they are. A table without one of the
    known names in its first row has no header; every table has one if known is None.
    """
    name = f"--input {file.as_posix()}"
    if file.suffix.lower() == PARQUET:
        number = 0
        for number, row in parquet_rows(name, file)[1]:
            yield f"{name}:{number}", row
        if not number:
            raise UserError(f"{name}: the list is empty")
        return
    option = "--data.encoding" if form.encoding else ""
    text = decode_text(file.read_bytes(), name, form.encoding or "utf-8", option, numbers_line=False)
    suffix = file.suffix.lower()
    if not text.strip():
        raise UserError(f"{name}: the list is empty")
    if zeros := zeros_in(text):
        print(f"warning: {name}:{zeros}", file=sys.stderr)
    if suffix == ".json":
        yield from ((f"{name}:{number}", row) for number, row in enumerate(_array(file) or (), start=1))
        return
    if suffix in (".csv", ".tsv"):
        separator = form.separator or (",", "\t")[suffix == ".tsv"]
        is_quoted = suffix == ".csv" and form.quotes
        rows = csv_rows(name, text, separator) if is_quoted else tsv_rows(text, separator)
        yield from _table(name, rows, form, known)
        return
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines: JSON may hold other separators
        if line.strip():
            yield f"{name}:{number}", _json(f"{name}:{number}", line) if suffix == ".jsonl" else line.rstrip("\r")


def _array(file: Path) -> list[Any] | None:
    """Rows of a JSON document with an array; None if it is another text."""
    try:
        return json_array(file.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError:
        return None


def _table(
    name: str, rows: Iterator[tuple[int, list[str]]], form: _Form, known: Sequence[str] | None
) -> Iterator[tuple[str, dict[str, str]]]:
    first = next(rows)
    columns = [column.strip() for column in first[1]]
    if known is not None and not set(columns) & set(known):
        columns = [str(number) for number in range(1, len(columns) + 1)]
        rows = chain([first], rows)
    if twice := [column for column in form.columns if columns.count(column) > 1]:
        raise UserError(f"{name}:{first[0]}: two columns are called {twice[0]}, expected one")
    is_empty = True
    others = []  # line and number of fields of rows with more or fewer than the header
    for line, fields in rows:
        is_empty = False
        if len(fields) < len(columns) or any(fields[len(columns) :]):
            others.append((line, len(fields)))
        pairs = zip_longest(columns, fields[: len(columns)], fillvalue="")
        yield f"{name}:{line}", {column: value for column, value in pairs if column}
    if is_empty:
        raise UserError(f"{name}: the list is empty")
    if others:
        line, number = others[0]
        rest = "left out the fields after them" if number > len(columns) else "read the missing ones as empty"
        text = f"{len(others)} row{'s' * (len(others) > 1)} without exactly {len(columns)} fields"
        print(f"warning: {name}:{line}: {rest}: {text}, the first with {number}", file=sys.stderr)


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


def _from_standard_input(reads_rows: bool, reads_tables: bool) -> Sources:
    content = sys.stdin.buffer.read()
    if reads_tables and content.strip():
        return Sources(["-"], [content])
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
