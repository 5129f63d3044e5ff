"""The columns of texts and labels in a table, and the option that names them where they have other names."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from playbook import UserError, named_separator, nearest

TEXT_COLUMNS = ("text", "sentence", "review", "content", "comment", "question", "prompt")
LABEL_COLUMNS = ("label", "class", "category", "target", "sentiment")


def column_of(row: Mapping[str, Any], names: Sequence[str], option: str, others: Sequence[str] = ()) -> str:
    """The first of some names that a row has.

    Args:
        row: values by column.
        names: of the columns to look for.
        option: the data's option that names this column, text_column or label_column.
        others: names of columns that are used for something else.

    Raises:
        UserError: it has none; the message has the option that mends it.
    """
    name = next((name for name in names if name in row), None)
    if name is None:
        wanted = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
        has = ", ".join(f"{column:.30}" for column in row)
        remedy = _remedy(row, names, option, others)
        near = next((text for name in names if (text := nearest(name, row))), "") if "separator" not in remedy else ""
        raise UserError(f"expected a column {wanted}, got {has}{near}{remedy}")
    return name


def _remedy(row: Mapping[str, Any], names: Sequence[str], option: str, others: Sequence[str]) -> str:
    """The option that a table with such a row needs, as it is written in a command."""
    known = (*names, *others, *TEXT_COLUMNS, *LABEL_COLUMNS)
    if sign := named_separator(row, known) or _only_separator(row):
        return f'; expected --data.separator "{sign}"'
    if any(re.fullmatch(r"[-+]?[.\d]+", column) for column in row) and not all(column.isdecimal() for column in row):
        return "; expected --data.header false where the columns have no names"
    free = [column for column in row if column not in others]
    if not free:
        return ""
    lower = {column.lower(): column for column in free}
    near = (lower[close[0]] for name in names if (close := get_close_matches(name.lower(), lower, n=1)))
    likely = free[0] if len(free) == 1 else ""
    if option == "text_column":
        likely = max(free, key=lambda column: len(row[column]) if isinstance(row[column], str) else 0)
    column = next(near, likely)
    return f"; expected --data.{option} {column}" if column else f"; name it with --data.{option}"


def _only_separator(row: Mapping[str, Any]) -> str:
    """A separator inside the only field of a row."""
    if len(row) != 1:
        return ""
    (column, value), *_ = row.items()
    return next((sign for sign in (";", "\\t", "|") if sign.replace("\\t", "\t") in f"{column}{value}"), "")
