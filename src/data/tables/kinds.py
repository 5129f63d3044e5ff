"""What the values of a column are: numbers, categories, dates, or nothing that a net reads."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Literal

import numpy as np

from playbook import TableReader, category_of, is_missing, number_of, seconds_of

Kind = Literal["number", "category", "date", "text", "constant", "empty", "unnamed"]
USABLE: tuple[Kind, ...] = ("number", "category", "date")

MOSTLY = 0.9  # share of values that are numbers or dates, from which on the others are mistakes
TEXT_SHARE = 0.5  # share of distinct values, above which words name single rows, as names and notes do
FEW = 20  # distinct values, up to which words are categories whatever their share
FOREIGN = {
    "numbers such as 1234.5": re.compile(r"[-+]?[€$£]?\s?(\d+|\d{1,3}([.,' \u00a0]\d{3})+)([.,]\d+)?\s?[%€$£]?"),
    "dates such as 2024-05-17": re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{2,4}([ T].*)?"),
}


def infer_kind(values: Sequence[Any], missing: frozenset[str]) -> Kind:
    """What the values of a column are.

    Numbers and dates in ISO 8601 are those if at least 90 % of the values are: the others are then mistakes, not
    categories. Digits after a leading zero, as in postal codes, are categories. Words are text, which no net here
    reads, if more than half of them are different and more than 20.
    """
    types = set(map(type, values))
    if any(issubclass(cls, list | tuple | dict | bytes) for cls in types):
        return "text"
    if bool not in types and _are_different_numbers(values, missing) and not any(map(_is_padded, values)):
        return "number"  # as below, in a fifth of the time
    counts = _count(values, missing)
    if not counts:
        return "empty"
    num_present = sum(counts.values())
    first = category_of(next(iter(counts)), missing)
    if num_present == len(values) and all(category_of(value, missing) == first for value in counts):
        return "constant"
    if all(isinstance(value, bool) for value in counts):
        return "category"
    if not any(map(_is_padded, counts)):
        if _share(counts, _is_number) >= MOSTLY:
            return "number"
        if _share(counts, _is_date) >= MOSTLY:
            return "date"
    most = max(FEW, TEXT_SHARE * num_present)
    is_text = len(counts) > most and len({category_of(value, missing) for value in counts}) > most
    return "text" if is_text else "category"


def foreign_form(values: Sequence[Any], missing: frozenset[str]) -> tuple[str, Any] | None:
    """What a column of words should contain, and its first such value, if it has numbers or dates in another form.

    These are numbers such as 1.234,50, 12 % or $5, and dates such as 17.05.2024.
    """
    counts = _count([value for value in values if isinstance(value, str)], missing)
    if not counts or any(map(_is_padded, counts)):
        return None
    for form, pattern in FOREIGN.items():
        matches = {value: count for value, count in counts.items() if pattern.fullmatch(value.strip())}
        foreign = next((value for value in matches if not _is_number(value)), None)
        if foreign is not None and sum(matches.values()) >= MOSTLY * sum(counts.values()):
            return form, foreign
    return None


def _count(values: Sequence[Any], missing: frozenset[str]) -> dict[Any, int]:
    """How often each value that is not missing occurs."""
    return {value: count for value, count in Counter(values).items() if not is_missing(value, missing)}


def _are_different_numbers(values: Sequence[Any], missing: frozenset[str]) -> bool:
    try:
        numbers = TableReader.parse(values, "number", missing)
    except ValueError:  # InputError of the runtime
        return False
    present = numbers[~np.isnan(numbers)]
    return len(present) > 0 and bool(present.min() < present.max())


def _share(counts: Mapping[Any, int], test: Callable[[Any], bool]) -> float:
    return sum(count for value, count in counts.items() if test(value)) / sum(counts.values())


def _is_padded(value: Any) -> bool:
    return isinstance(value, str) and (text := value.strip())[:1] == "0" and len(text) > 1 and text.isdecimal()


def _is_number(value: Any) -> bool:
    if not isinstance(value, str):
        return isinstance(value, int | float | Decimal | np.number)
    try:
        number_of(value, frozenset())
    except ValueError:
        return False
    return True


def _is_date(value: Any) -> bool:
    if not isinstance(value, str):
        return isinstance(value, date)
    try:
        seconds_of(value, frozenset())
    except ValueError:
        return False
    return True
