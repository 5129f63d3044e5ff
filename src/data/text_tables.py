"""Tables of texts in files: CSV, TSV, JSON lines and Parquet, row by row, each with the number of its line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playbook import UserError, csv_rows, parse_json, tsv_rows

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")


def read_rows(file: Path, header: bool = True) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Reads a table.

    Fields of a CSV are quoted as in RFC 4180. Every line of a TSV is a row, whatever quotes it contains, as texts
    contain many; only quotes around a whole field are removed. In a Parquet file of Hugging Face, class numbers are
    replaced by the class names.

    Args:
        file: a .csv, .tsv or .jsonl in UTF-8, or a .parquet.
        header: whether the first line of a CSV or TSV names the columns; otherwise they are named 1, 2, ….

    Yields:
        The line in which a row ends, or its number in a Parquet file, counted from 1, and the row: its values by
        column, or a sentence that says why it cannot be read.

    Raises:
        UserError: the file is not UTF-8, not Parquet, or has no rows.
    """
    rows = _parquet_rows(file) if file.suffix.lower() == ".parquet" else _text_rows(file, header)
    is_empty = True
    for number, row in rows:
        is_empty = False
        yield number, row
    if is_empty:
        raise UserError(f"--data.root: {file.as_posix()}: is empty, expected one row per text")


def _parquet_rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    from pyarrow import ArrowInvalid, parquet

    try:
        table = parquet.ParquetFile(file)
    except ArrowInvalid as error:
        raise UserError(f"--data.root: {file.as_posix()}: is no Parquet file: {error}") from error
    described = json.loads((table.schema_arrow.metadata or {}).get(b"huggingface", b"{}"))
    features = described.get("info", {}).get("features", {})
    names = {column: feature["names"] for column, feature in features.items() if "names" in feature}
    rows = (row for batch in table.iter_batches() for row in batch.to_pylist())
    for number, row in enumerate(rows, start=1):
        for column, classes in names.items():
            if isinstance(row[column], int) and 0 <= row[column] < len(classes):  # -1 where nobody has labelled
                row[column] = classes[row[column]]
        yield number, row


def _text_rows(file: Path, header: bool) -> Iterator[tuple[int, dict[str, Any] | str]]:
    content = file.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"--data.root: {file.as_posix()}:{line}: is not text in UTF-8: {error.reason}") from error
    yield from _json_lines(text) if file.suffix.lower() == ".jsonl" else _fields(file, text, header)


def _json_lines(text: str) -> Iterator[tuple[int, dict[str, Any] | str]]:
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines: JSON may hold other separators
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except ValueError as error:
            yield number, f"is not valid JSON: {error}"
            continue
        yield number, row if isinstance(row, dict) else f"expected an object with text and label, got {row!r:.60}"


def _fields(file: Path, text: str, header: bool) -> Iterator[tuple[int, dict[str, Any] | str]]:
    rows = csv_rows(f"--data.root: {file.as_posix()}", text) if file.suffix.lower() == ".csv" else tsv_rows(text)
    columns: list[str] = []
    for number, fields in rows:
        if not columns:
            columns = [name.strip() for name in fields] if header else [str(i + 1) for i in range(len(fields))]
            if header:
                continue
        if len(fields) == len(columns):
            yield number, dict(zip(columns, fields, strict=True))
        else:
            yield number, f"expected {len(columns)} fields ({', '.join(columns)}), got {len(fields)}"
