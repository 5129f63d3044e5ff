"""Finds quotes in a CSV that swallow the rows behind them, because they are not closed where they should be."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

LINE_BREAK = re.compile(r"\r\n?|\n")
MIN_LINES = 3  # inside a field that all have as many columns as the table, to suspect them without another sign


class QuotedField(NamedTuple):
    """A quoted field of a row.

    Args:
        column: its number, from 0.
        line: line of the row in which it opens, from 0.
        content: text between its quotes.
        is_closed: whether a quote ends it.
        rest: characters between that quote and the next separator; none in valid CSV.
    """

    column: int
    line: int
    content: str
    is_closed: bool
    rest: str


class Swallowing(NamedTuple):
    """A quoted field that seems to contain rows of the table.

    Args:
        line: line in which it opens, from 1.
        last: line in which it ends.
        is_certain: whether every line of it looks like a row, the first one included, unless it is in the last column.
    """

    line: int
    last: int
    is_certain: bool


@cache
def _pattern(separator: str) -> re.Pattern[str]:
    other = f"[^{re.escape(separator)}\\r\\n]*"
    return re.compile(f'"(?P<content>[^"]*(?:""[^"]*)*)(?P<close>"?)(?P<rest>{other})|{other}')


def quoted_fields(row: str, separator: str) -> Iterator[QuotedField]:
    """The quoted fields of a row.

    Args:
        row: its text, with all of its lines.
        separator: character between fields.
    """
    place = column = 0
    while place <= len(row):
        match = _pattern(separator).match(row, place)
        assert match is not None, "matches nothing as well"
        if match["content"] is not None:
            line = len(LINE_BREAK.findall(row, 0, place))
            yield QuotedField(column, line, match["content"], bool(match["close"]), match["rest"])
        if row[match.end() : match.end() + 1] != separator:
            return
        place, column = match.end() + 1, column + 1


def unclosed(row: str, separator: str) -> QuotedField | None:
    """The first field of a row that no quote ends, or one that is followed by text although it has several lines."""
    for field in quoted_fields(row, separator):
        if not field.is_closed or (field.rest and LINE_BREAK.search(field.content)):
            return field
    return None


def swallowing_fields(
    rows: Sequence[tuple[int, str]], others: Sequence[Sequence[str]], num_columns: int, separator: str
) -> list[Swallowing]:
    """Fields that are quoted as they should be, but contain lines that look like further rows.

    A line looks like a row if it has as many fields as the table, and one of them also occurs in this column of another
    row, such as a class, or is a number of the same form.

    Args:
        rows: first line from 1, and text, of the rows of several lines.
        others: fields of the rows of one line.
        num_columns: of the table. In a table of one column, every line may be a row.
        separator: character between fields.
    """
    forms = [{_form(value) for value in column if value.strip()} for column in zip(*others, strict=True)]
    forms = forms or [set()] * num_columns

    def is_known(fields: Sequence[str], first: int) -> bool:
        return any(_form(value) in forms[first + place] for place, value in enumerate(fields))

    swallowings = []
    for start, row in rows:
        for field in quoted_fields(row, separator):
            lines = LINE_BREAK.split(field.content)
            if len(lines) == 1:
                continue
            first, *inner, last = (line.split(separator) for line in lines)
            after = first[1:]
            is_row = len(after) == num_columns - 1 - field.column > 0 and is_known(after, field.column + 1)
            num_alike = sum(len(fields) == num_columns for fields in inner)
            num_rows = sum(len(fields) == num_columns and is_known(fields, 0) for fields in inner)
            ends_in_row = 1 < len(last) <= num_columns and is_known(last[:-1], 0)
            looks_alike = len(inner) == num_alike >= MIN_LINES
            if num_columns == 1 or is_row or num_rows or ends_in_row or looks_alike:
                line = start + field.line
                is_last = field.column == num_columns - 1
                is_certain = num_columns > 1 and 0 < len(inner) == num_rows and (is_row or is_last)
                swallowings.append(Swallowing(line, line + len(inner) + 1, is_certain))
    return swallowings


def _form(value: str) -> str:
    """A value without its digits, by which numbers, dates and names of files of a column are alike."""
    return re.sub(r"\d+", "0", value)
