"""Rows of tables in text: CSV, TSV and JSON lines, each with the number of its line. Imports no torch."""

import csv
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from playbook.data.quotes import Swallowing, swallowing_fields, unclosed
from playbook.errors import UserError

SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # in JSON; two of them make a character
SEPARATORS = (";", "\t", ",", "|")  # that tables commonly have
LARGEST_FIELD = 2**31 - 1  # of a CSV, in characters; Python stops at 131,072 by itself


def csv_rows(name: str, text: str, separator: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Reads the rows of a CSV, quoted as in RFC 4180.

    Args:
        name: of the file, for messages.
        text: its content.
        separator: character between fields.

    Yields:
        The line in which a row ends, counted from 1, and its fields; empty lines are skipped.

    Raises:
        UserError: it is not valid CSV, such as a quote that is not closed.
    """
    table = CsvTable(text, separator)
    for line, fields in table.rows:
        if isinstance(fields, str):
            raise UserError(f"{name}:{line}: {fields}")
    if table.suspicion:
        print(f"warning: {name}:{table.suspicion}", file=sys.stderr)
    yield from table.rows  # type: ignore[misc]  # none of them is a sentence


class CsvTable:
    """A CSV, quoted as in RFC 4180, in which no quote swallows rows without a word.

    A quote that is not closed where a field ends makes its line unusable; reading continues on the next line.

    Args:
        text: its content.
        separator: character between fields.

    Attributes:
        rows: the line in which a row ends, counted from 1, and its fields, or a sentence that says why the line cannot
            be read; empty lines are skipped.
        suspicion: line and sentence about fields that are quoted correctly, but look like several rows; or nothing.
    """

    rows: list[tuple[int, list[str] | str]]

    def __init__(self, text: str, separator: str = ",") -> None:
        csv.field_size_limit(LARGEST_FIELD)
        self._separator = separator
        self._lines = io.StringIO(text, newline="").readlines()
        self._openings: set[int] = set()  # lines whose quote opens in valid CSV, but swallows rows
        suspects = self._read()
        while openings := {suspect.line for suspect in suspects if suspect.is_certain} - self._openings:
            self._openings |= openings
            suspects = self._read()
        self.suspicion = ""
        if suspects:
            first = suspects[0]
            fields = f"{len(suspects)} quoted fields look" if len(suspects) > 1 else "a quoted field looks"
            first_one = "the first" if len(suspects) > 1 else "it"
            self.suspicion = (
                f"{first.line}: {fields} like several rows of the table, as after a quote that is not closed: "
                f"{first_one} opens here and ends in line {first.last}"
            )

    def _read(self) -> list[Swallowing]:
        self.rows = []
        several: list[tuple[int, int]] = []  # first and last line of the rows of several lines
        begin = 0
        while begin < len(self._lines):
            rest = map(self._lines.__getitem__, range(begin, len(self._lines)))  # a slice would copy it at every fault
            reader = csv.reader(rest, delimiter=self._separator)
            start, begin, base = begin, len(self._lines), begin
            for fields in reader:
                end = base + reader.line_num
                if (end - start > 1 or end == len(self._lines)) and (fault := self._fault(start, end)):
                    self.rows.append(fault)
                    begin = fault[0]
                    break
                if fields:
                    self.rows.append((end, fields))
                if end - start > 1:
                    several.append((start, end))
                start = end
        if not several:
            return []
        width = next((len(fields) for _, fields in self.rows if not isinstance(fields, str)), 0)
        ends = {end for _, end in several}
        others = [fields for end, fields in self.rows[1:] if end not in ends and not isinstance(fields, str)]
        texts = [(start + 1, "".join(self._lines[start:end])) for start, end in several]
        return swallowing_fields(texts, [fields for fields in others if len(fields) == width], width, self._separator)

    def _fault(self, start: int, end: int) -> tuple[int, str] | None:
        """Line and sentence about the first quote of a row that is not closed."""
        field = unclosed("".join(self._lines[start:end]), self._separator)
        if field is not None:
            line = start + field.line + 1
            until = f"the next one, in line {end}, ends no field" if field.is_closed else "no other one follows"
        elif swallowed := sorted(self._openings.intersection(range(start + 1, end + 1))):
            line, until = swallowed[0], f"up to line {end}, it contains rows of the table"
        else:
            return None
        remedy = 'expected "" for a quote in a text'
        return line, f"the quote that opens a field in this line is not closed: {until}; {remedy}"


def tsv_rows(text: str, separator: str = "\t") -> Iterator[tuple[int, list[str]]]:
    """Reads the rows of a TSV: every line is a row, whatever quotes it contains, as texts contain many.

    Args:
        text: content of the file.
        separator: character between fields.

    Yields:
        The line of a row, counted from 1, and its fields, without quotes around a whole field; empty lines are skipped.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, [_unquoted(field) for field in line.rstrip("\r").split(separator)]


def parquet_rows(name: str, file: Path) -> tuple[dict[bytes, bytes], Iterator[tuple[int, dict[str, Any]]]]:
    """Reads a Parquet file.

    Args:
        name: of the file, for messages.
        file: its path.

    Returns:
        The metadata of its schema; and the number of each row, counted from 1, and its values by column.

    Raises:
        UserError: it is no Parquet file.
    """
    from pyarrow import ArrowInvalid, parquet

    try:
        table = parquet.ParquetFile(file)
    except ArrowInvalid as error:
        raise UserError(f"{name}: is no Parquet file: {error}") from error
    rows = (row for batch in table.iter_batches() for row in batch.to_pylist())
    return table.schema_arrow.metadata or {}, enumerate(rows, start=1)


def named_separator(names: Iterable[str], columns: Sequence[str]) -> str:
    """Finds the separator of a header that was read with another one.

    Args:
        names: those that were read.
        columns: some of the names that it should have, in any case.

    Returns:
        A character as it is written in a command, or nothing if none separates such names.
    """
    wanted = {column.lower() for column in columns if not column.isdecimal()}
    for sign in SEPARATORS:
        parts = {part.strip().strip('"').lower() for name in names if sign in name for part in name.split(sign)}
        if parts & wanted:
            return sign.replace("\t", "\\t")
    return ""


def _unquoted(field: str) -> str:
    inner = field[1:-1]
    is_quoted = len(field) > 1 and field[0] == field[-1] == '"' and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if is_quoted else field


def parse_json(line: str) -> Any:
    """Returns the value of a line of JSON.

    Raises:
        ValueError: it is not valid, or contains half of a surrogate pair, which is not text.
    """
    value = json.loads(line)
    if SURROGATE.search(line):
        json.dumps(value, ensure_ascii=False).encode()
    return value


def json_array(text: str) -> list[Any] | None:
    """Rows of a JSON document: an array, or the array `data`, or the only one, of an object; None if there is none."""
    try:
        value = parse_json(text)
    except ValueError:
        return None
    if isinstance(value, dict):
        arrays = [entry for entry in value.values() if isinstance(entry, list)]
        value = value.get("data", arrays[0] if len(arrays) == 1 else None)
    return value if isinstance(value, list) else None
