"""A table of predictions: JSON lines while predicting, and one file of the requested format at the end."""

import csv
import json
import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from playbook.errors import UserError, nearest

FORMATS = ("csv", "parquet", "jsonl")
ROWS_AT_ONCE = 10_000  # that are made into columns for Parquet


class Rows:
    """Rows of a table in the order of their samples, from the files that one or more processes wrote.

    Args:
        parts: JSON lines of index, id and what was predicted.
    """

    def __init__(self, parts: list[Path]) -> None:
        self.parts = parts
        self._places: list[tuple[int, int, int]] = []  # index of the sample, part, offset in it
        for number, part in enumerate(parts):
            for offset, line in _whole_lines(part):
                self._places.append((json.loads(line)["index"], number, offset))
        self._places.sort()

    def __len__(self) -> int:
        return len(self._places)

    def indices(self) -> set[int]:
        """Samples that have a row."""
        return {index for index, _, _ in self._places}

    def entries(self) -> Iterator[dict[str, Any]]:
        """What was written for each sample."""
        files = [part.open("rb") for part in self.parts]
        try:
            for _, number, offset in self._places:
                files[number].seek(offset)
                yield json.loads(files[number].readline())
        finally:
            for file in files:
                file.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return ({"id": entry["id"], **entry["row"]} for entry in self.entries())


def cut_to_whole_lines(part: Path) -> None:
    """Removes a last line that a kill has cut short."""
    if part.exists():
        end = max((offset + len(line) for offset, line in _whole_lines(part)), default=0)
        os.truncate(part, end)


def _whole_lines(part: Path) -> Iterator[tuple[int, bytes]]:
    offset = 0
    with part.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield offset, line
            offset += len(line)


def check_format(name: str | None) -> None:
    """Refuses what is no format.

    Raises:
        UserError: the name is not one of FORMATS.
    """
    if name is not None and name not in FORMATS:
        raise UserError(f"--format {name}: expected one of {', '.join(FORMATS)}{nearest(name, FORMATS)}")
    if name == "parquet":
        import pyarrow  # noqa: F401  # an optional extra, named before the work is done


def write_table(rows: Rows, stem: Path, kind: str | None) -> Path:
    """Writes the table; the file appears under its name when it is whole.

    Args:
        rows: of the table.
        stem: path without a suffix.
        kind: csv, parquet or jsonl; None for CSV if every value fits into a cell, JSON lines otherwise.

    Returns:
        The file.
    """
    if kind is None:
        kind = "csv" if all(_is_flat(row) for row in rows) else "jsonl"
    file = stem.with_name(f"{stem.name}.{kind}")
    beside = file.with_name(f".{file.name}")
    {"csv": _write_csv, "jsonl": _write_jsonl, "parquet": _write_parquet}[kind](rows, beside)
    beside.replace(file)
    return file


def _write_jsonl(rows: Rows, file: Path) -> None:
    with file.open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _write_csv(rows: Rows, file: Path) -> None:
    columns = list(dict.fromkeys(name for row in _flat_rows(rows) for name in row))
    with file.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, columns, restval="")
        writer.writeheader()
        writer.writerows(_flat_rows(rows))


def _write_parquet(rows: Rows, file: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    kinds: dict[str, set[type]] = {}
    for row in _flat_rows(rows):
        for name, value in row.items():
            kinds.setdefault(name, set()).add(type(value))
    types = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
    columns = {}
    for name, kinds_of_column in kinds.items():
        known = kinds_of_column - {type(None)}
        wide = {float} if known == {int, float} else known
        columns[name] = types[next(iter(wide))] if len(wide) == 1 else pa.string()
    schema = pa.schema(list(columns.items()))

    def cell(name: str, value: Any) -> Any:
        return str(value) if value is not None and columns[name] == pa.string() else value

    with parquet.ParquetWriter(file, schema) as writer:
        chunk: list[dict[str, Any]] = []
        for row in chain(_flat_rows(rows), [None]):
            if row is not None:
                chunk.append({name: cell(name, row.get(name)) for name in columns})
            if chunk and (row is None or len(chunk) == ROWS_AT_ONCE):
                writer.write_table(pa.Table.from_pylist(chunk, schema))
                chunk = []


def _is_flat(row: dict[str, Any]) -> bool:
    listed = [value for value in row.values() if isinstance(value, list)]
    entries = [entry for value in row.values() if isinstance(value, dict) for entry in value.values()]
    has_table = len(listed) == 1 and _is_table(listed[0])
    return not any(isinstance(entry, list | dict) for entry in entries) and (not listed or has_table)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


def _flat_rows(rows: Rows) -> Iterator[dict[str, Any]]:
    """Rows of cells: a dict has a column an entry; a list of dicts, such as boxes, has a row for each of them."""
    for row in rows:
        cells: dict[str, Any] = {}
        table: list[dict[str, Any]] = [{}]
        for name, value in row.items():
            if isinstance(value, dict):
                cells |= {f"{name}_{key}": _cell(entry) for key, entry in value.items()}
            elif _is_table(value):
                table = value or [{}]
            else:
                cells[name] = _cell(value)
        yield from ({**cells, **{name: _cell(entry) for name, entry in line.items()}} for line in table)


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
