"""Rows of tables in text: CSV, TSV and JSON lines, each with the number of its line. Imports no torch."""

import csv
import io
import json
import re
from collections.abc import Iterator
from typing import Any

from playbook.errors import UserError

SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # in JSON; two of them make a character
LARGEST_FIELD = 2**31 - 1  # of a CSV, in characters; Python stops at 131,072 by itself


def csv_rows(name: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """Reads the rows of a CSV, quoted as in RFC 4180.

    Args:
        name: of the file, for messages.
        text: its content.

    Yields:
        The line in which a row ends, counted from 1, and its fields; empty lines are skipped.

    Raises:
        UserError: it is not valid CSV.
    """
    csv.field_size_limit(LARGEST_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        for fields in reader:
            if fields:
                yield reader.line_num, fields
    except csv.Error as error:
        raise UserError(f"{name}:{reader.line_num}: is no valid CSV: {error}") from error


def tsv_rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Reads the rows of a TSV: every line is a row, whatever quotes it contains, as texts contain many.

    Args:
        text: content of the file.

    Yields:
        The line of a row, counted from 1, and its fields, without quotes around a whole field; empty lines are skipped.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, [_unquoted(field) for field in line.rstrip("\r").split("\t")]


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
