"""What a target is taken for, and targets that cannot be used."""

from typing import Any

import pytest
import torch

from playbook import UserError
from src.data.tables.rows import Rows
from src.data.tables.target import is_of_classes, learn_classes, read_targets, target_problems

MISSING = frozenset({"", "?"})


def rows_of(values: list[Any]) -> Rows:
    return Rows([f"t.csv:{line}" for line in range(2, 2 + len(values))], {"y": values})


@pytest.mark.parametrize(
    ("values", "has_classes"),
    [
        (["a", "b", "?"], True),
        (["0", "1", ""], True),
        ([0.0, 1.0, 0.0], True),
        ([True, False], True),
        (list(range(20)), True),
        (list(range(21)), False),
        (["1.5", "2"], False),
        (["2024-01-01", "2024-01-02"], True),
    ],
)
def test_what_a_target_is_taken_for(values: list[Any], has_classes: bool) -> None:
    assert is_of_classes(values, "auto", MISSING) == has_classes
    assert is_of_classes(values, "classes", MISSING)
    assert not is_of_classes(values, "number", MISSING)


def test_rows_without_a_usable_target() -> None:
    values = ["1", "", None, "nan", "inf", "one", 2.5, float("nan")]
    problems = target_problems(values, False, MISSING)
    assert problems == {
        1: "is missing",
        2: "is missing",
        3: "expected a finite number, got nan",
        4: "expected a finite number, got inf",
        5: "expected a number, got 'one'",
        7: "is missing",
    }
    assert target_problems(values, True, MISSING).keys() == {1, 2, 7}
    assert target_problems(["1", "2"], False, MISSING) == {}


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["b", "a", "b", "a"], ["a", "b"]),
        (["10", "9", "-1"] * 2, ["-1", "9", "10"]),
        ([1.0, 0.0, 1.0, 0.0], ["0", "1"]),
        ([True, False] * 2, ["false", "true"]),
    ],
)
def test_order_of_classes(values: list[Any], classes: list[str]) -> None:
    rows = rows_of(values)
    assert learn_classes("y", rows, MISSING) == classes
    numbers = read_targets("y", rows, classes, MISSING)
    assert [classes[number] for number in numbers] == [str(value).lower().removesuffix(".0") for value in values]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (["a", "a"], "every row has a, expected two or more classes"),
        (["a", "b", "c", "a"], "3 different classes in 4 rows"),
    ],
)
def test_too_few_or_too_many_classes(values: list[Any], sentence: str) -> None:
    with pytest.raises(UserError, match=f"--data.target y: {sentence}"):
        learn_classes("y", rows_of(values), MISSING)


def test_an_unknown_class_is_named() -> None:
    with pytest.raises(UserError, match=r"t.csv:3: training had no class catt, but cat, dog. Nearest: cat"):
        read_targets("y", rows_of(["dog", "catt"]), ["cat", "dog"], MISSING)


def test_numbers_keep_their_units() -> None:
    assert torch.equal(read_targets("y", rows_of(["1.5", "-2"]), None, MISSING), torch.tensor([1.5, -2.0]))
