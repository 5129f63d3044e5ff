"""The user's lines run again: which values are seen where."""

import inspect
import random
from typing import Any

import pytest

from torchdoctor.evidence import replay
from torchdoctor.findings import Place


def _made() -> list[int]:
    first = [1, 2]
    second = [*first, 3]
    if len(second) > 2:
        raise ValueError("of the user")
    return second


def _line(text: str) -> int:
    lines, start = inspect.getsourcelines(_made)
    return start + next(number for number, line in enumerate(lines) if text in line)


def test_each_line_is_seen_with_what_is_known_after_it() -> None:
    seen: dict[int, dict[str, Any]] = {}

    def see(place: Place, values: dict[str, Any]) -> bool:
        seen[place.line] = dict(values)
        return False

    replay.trace_lines(_made, see)  # the error is the user's own
    assert seen[_line("first =")] == {"first": [1, 2]}
    assert seen[_line("second =")] == {"first": [1, 2], "second": [1, 2, 3]}


def test_it_ends_when_what_was_looked_for_is_found_or_looking_fails() -> None:
    seen: list[int] = []
    replay.trace_lines(_made, lambda place, values: seen.append(place.line) or "first" in values)
    assert seen[-1] == _line("first =")
    with pytest.raises(ZeroDivisionError):  # ours, not the user's
        replay.trace_lines(_made, lambda place, values: 1 // 0 > 0)


def _drawn() -> list[int]:
    numbers = [1, 2]
    shuffle = random.shuffle
    shuffle(numbers)
    return numbers


def test_the_line_that_draws_and_its_callers() -> None:
    def run() -> list[int]:
        return _drawn()

    first = inspect.getsourcelines(_drawn)[1]
    place, caller = replay.first_draw(run)[:2]
    assert place.line == first + 3
    assert caller.code == "return _drawn()"
    assert not replay.first_draw(_made)
