"""Tables in files: CSV, TSV, JSON lines and Parquet, row by row, each with the number of its line."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from playbook import CsvTable, UserError, decode_text, parquet_rows, parse_json, tsv_rows, zeros_in

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")


class Form(NamedTuple):
    """How tables in text are written.

    Args:
        header: whether the first line of a CSV or TSV names the columns; otherwise they are named 1, 2, ….
        separator: character between fields. Defaults to the comma for .csv and the tab for .tsv.
        quotes: whether quotes enclose fields of a .csv; otherwise they are text, as in a .tsv.
        encoding: of the text.
        option: the option that names the files, for messages.
    """

    header: bool = True
    separator: str | None = None
    quotes: bool = True
    encoding: str = "utf-8"
    option: str = "--data.root"


def read_rows(
    file: Path, form: Form, columns: Collection[str] | None, warn: Callable[[str], Any]
) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Reads a table.

    Fields of a CSV are quoted as in RFC 4180. Every line of a TSV is a row, whatever quotes it contains, as texts
    contain many; only quotes around a whole field are removed. In a Parquet file of Hugging Face, class numbers are
    replaced by the class names.

    Args:
        file: a .csv, .tsv, .jsonl or .parquet.
        form: how it is written, unless it is a .parquet.
        columns: names that must not occur twice in a header; all, if None.
        warn: called with a sentence about fields that look like several rows.

    Yields:
        The line in which a row ends, or its number in a Parquet file, counted from 1, and the row: its values by
        column, or a sentence that says why it cannot be read.

    Raises:
        UserError: the file has another encoding, is not Parquet, has a column twice, or has no rows.
    """
    rows = _parquet_rows(file, form) if file.suffix.lower() == ".parquet" else _text_rows(file, form, columns, warn)
    is_empty = True
    for number, row in rows:
        is_empty = False
        yield number, row
    if is_empty:
        raise UserError(f"{form.option}: {file.as_posix()}: is empty, expected rows")


def check_separator(separator: str | None) -> str | None:
    r"""The character that an option `separator` means; \t is a tab.

    Raises:
        ValueError: it is not one character, or one that separates no fields.
    """
    sign = "\t" if separator in ("\\t", "tab") else separator
    if sign is not None and (len(sign) != 1 or sign in '"\r\n'):
        raise ValueError(f"separator: expected one character, such as ; or \\t, got {separator!r}")
    return sign


def _parquet_rows(file: Path, form: Form) -> Iterator[tuple[int, dict[str, Any]]]:
    metadata, rows = parquet_rows(f"{form.option}: {file.as_posix()}", file)
    described = json.loads(metadata.get(b"huggingface", b"{}"))
    features = described.get("info", {}).get("features", {})
    names = {column: feature["names"] for column, feature in features.items() if "names" in feature}
    for number, row in rows:
        for column, classes in names.items():
            if isinstance(row[column], int) and 0 <= row[column] < len(classes):  # -1 where nobody has labelled
                row[column] = classes[row[column]]
        yield number, row


def _text_rows(
    file: Path, form: Form, columns: Collection[str] | None, warn: Callable[[str], Any]
) -> Iterator[tuple[int, dict[str, Any] | str]]:
    text = decode_text(file.read_bytes(), f"{form.option}: {file.as_posix()}", form.encoding)
    if zeros := zeros_in(text):
        warn(f"{form.option}: {file.as_posix()}:{zeros}")
    if file.suffix.lower() == ".jsonl":
        yield from _json_lines(text)
        return
    is_tsv = file.suffix.lower() == ".tsv"
    if is_tsv or not form.quotes:
        yield from _named(file, tsv_rows(text, form.separator or ("\t" if is_tsv else ",")), form, columns)
        return
    table = CsvTable(text, form.separator or ",")
    yield from _named(file, table.rows, form, columns)
    if table.suspicion:
        warn(f"{form.option}: {file.as_posix()}:{table.suspicion}")


def _json_lines(text: str) -> Iterator[tuple[int, dict[str, Any] | str]]:
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines: JSON may hold other separators
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except ValueError as error:
            yield number, f"is not valid JSON: {error}"
            continue
        yield number, row if isinstance(row, dict) else f"expected an object, got {row!r:.60}"


def _named(
    file: Path, rows: Iterable[tuple[int, list[str] | str]], form: Form, columns: Collection[str] | None
) -> Iterator[tuple[int, dict[str, Any] | str]]:
    names: list[str] = []
    for number, fields in rows:
        place = f"{form.option}: {file.as_posix()}:{number}"
        if isinstance(fields, str):
            sentence = f"{fields}, or --data.quotes false where quotes are text"
            if not names and form.header:
                raise UserError(f"{place}: {sentence}")
            yield number, sentence
            continue
        if not names:
            names = [name.strip() for name in fields] if form.header else [str(i + 1) for i in range(len(fields))]
            checked = set(names) if columns is None else set(names) & set(columns)
            if twice := sorted(name for name in checked if names.count(name) > 1):
                raise UserError(f"{place}: two columns are called {twice[0]}, expected one")
            if form.header:
                continue
        if len(fields) == len(names):
            yield number, dict(zip(names, fields, strict=True))
            continue
        sign = next((sign for sign in (";", "\t", "|") if len(names) == 1 and sign in names[0]), "")
        if sign:
            written = sign.replace("\t", "\\t")
            raise UserError(f'{place}: expected fields like {names[0]}; expected --data.separator "{written}"')
        is_quoted = file.suffix.lower() == ".tsv" and any(field.startswith('"') for field in fields)
        hint = "; every line of a TSV is a row, whatever quotes it contains" if is_quoted else ""
        yield number, f"expected {len(names)} fields ({', '.join(names)}), got {len(fields)}{hint}"
