"""The user's lines run again: which values are seen where, and what counts as an array."""

import inspect
from typing import Any

import numpy as np
import pytest
import torch

from playbook.doctor import replay
from playbook.doctor.findings import Place


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

    replay.lines(_made, see)  # the error is the user's own
    assert seen[_line("first =")] == {"first": [1, 2]}
    assert seen[_line("second =")] == {"first": [1, 2], "second": [1, 2, 3]}


def test_it_ends_when_what_was_looked_for_is_found_or_looking_fails() -> None:
    seen: list[int] = []
    replay.lines(_made, lambda place, values: seen.append(place.line) or "first" in values)
    assert seen[-1] == _line("first =")
    with pytest.raises(ZeroDivisionError):  # ours, not the user's
        replay.lines(_made, lambda place, values: 1 // 0 > 0)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.ones(2, requires_grad=True), np.ones(2)),
        ([1, 2, 3], np.array([1, 2, 3])),
        ([torch.zeros(2), torch.zeros(2)], np.zeros((2, 2))),
        (True, np.asarray(True)),
        (np.float32(0.5), np.asarray(0.5)),
        ([torch.zeros(2), torch.zeros(3)], None),
        (["a", "b"], None),
        (torch.ones(2, dtype=torch.bfloat16), None),
        (torch.ones(2, dtype=torch.complex64), None),
        (np.array(["a"]), None),
        (np.zeros(0), None),
        (object(), None),
    ],
)
def test_array(value: Any, expected: np.ndarray | None) -> None:
    found = replay.array(value)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        np.testing.assert_array_equal(found, expected)


def test_small_tuples_and_dicts_are_looked_into() -> None:
    assert list(replay.parts([(1, 2), {"a": 3}, [4]])) == [(1, 2), 1, 2, {"a": 3}, 3, [4]]
