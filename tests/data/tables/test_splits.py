"""Divisions against scikit-learn's, and what they must keep apart."""

from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from playbook import UserError
from src.data.tables.rows import Rows
from src.data.tables.splits import cut_by_chance, cut_by_column, cut_by_time, cut_fold, times_of


def assert_partition(num_rows: int, *parts: np.ndarray) -> None:
    assert sorted(np.concatenate(parts).tolist()) == list(range(num_rows))


@pytest.mark.parametrize("classes", [None, [0, 1, 1, 2] * 25])
def test_chance_is_scikit_learns(classes: list[int] | None) -> None:
    first, second = cut_by_chance(100, 0.15, 3, classes, None)
    expected = train_test_split(range(100), test_size=15, random_state=3, stratify=classes)
    assert [first.tolist(), second.tolist()] == expected


def test_a_class_with_a_single_row_leaves_the_others_stratified() -> None:
    classes = ["rare", *["a"] * 59, *["b"] * 20]
    first, second = cut_by_chance(80, 0.25, 0, classes, None)
    assert_partition(80, first, second)
    assert sum(classes[row] == "b" for row in second) == 5


def test_classes_that_do_not_fit_are_not_stratified() -> None:
    assert_partition(6, *cut_by_chance(6, 0.2, 0, list("aabbcc"), None))


def test_groups_stay_together() -> None:
    groups = [number // 3 for number in range(60)]
    first, second = cut_by_chance(60, 0.2, 0, None, groups)
    assert_partition(60, first, second)
    assert len(second) == 12
    assert not {groups[row] for row in first} & {groups[row] for row in second}


def test_time_cuts_at_a_moment() -> None:
    times = np.array([5, 1, 4, 4, 2, 3, 4, 6, 7, 0], dtype=float)
    first, second = cut_by_time(times, 0.5)
    assert_partition(10, first, second)
    assert times[first].max() < times[second].min()
    assert sorted(times[second].tolist()) == [4, 4, 4, 5, 6, 7]


def test_time_with_many_rows_at_the_first_moment() -> None:
    first, second = cut_by_time(np.array([0.0] * 8 + [1.0, 2.0]), 0.5)
    assert (len(first), len(second)) == (8, 2)


@pytest.mark.parametrize("classes", [None, list("aaab") * 10])
@pytest.mark.parametrize("groups", [None, [number // 2 for number in range(40)]])
def test_folds_cover_all_rows_once(classes: list[str] | None, groups: list[int] | None) -> None:
    parts = [cut_fold(40, 5, fold, 0, classes, groups) for fold in range(5)]
    assert_partition(40, *(second for _, second in parts))
    for first, second in parts:
        assert_partition(40, first, second)
        if groups is None and classes is not None:
            assert sum(classes[row] == "b" for row in second) == 2
        if groups is not None:
            assert not {groups[row] for row in first} & {groups[row] for row in second}


def test_folds_with_a_class_of_one_row() -> None:
    parts = [cut_fold(21, 4, fold, 0, ["rare", *"ab" * 10], None)[1] for fold in range(4)]
    assert_partition(21, *parts)
    for part in parts:
        assert abs(sum(row % 2 for row in part if row) - len([row for row in part if row]) / 2) <= 0.5


@pytest.mark.parametrize(("rows", "groups"), [(3, None), (8, [0, 0, 0, 0, 1, 1, 1, 1])])
def test_more_folds_than_rows_or_groups(rows: int, groups: list[int] | None) -> None:
    with pytest.raises(UserError, match=r"--data.folds 4: "):
        cut_fold(rows, 4, 0, 0, None, groups)


def rows_with(**values: list[Any]) -> Rows:
    return Rows([f"t.csv:{line}" for line in range(2, 2 + len(next(iter(values.values()))))], dict(values))


def test_a_column_names_the_splits() -> None:
    cut = cut_by_column("split", rows_with(split=["train", "Val ", "dev", "TEST", "valid", "train"]))
    assert {name: rows.tolist() for name, rows in cut.items()} == {"train": [0, 5], "val": [1, 2, 4], "test": [3]}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (["train", "val", "traen"], r"t.csv:4: expected train, val or test, got 'traen'"),
        (["train", "val", None], r"t.csv:4: expected train, val or test, got None"),
        (["train", "test", "test"], "no row says val"),
        (["val", "test", "test"], "no row says train"),
    ],
)
def test_a_column_that_does_not(values: list[Any], sentence: str) -> None:
    with pytest.raises(UserError, match=f"--data.split_column split: {sentence}"):
        cut_by_column("split", rows_with(split=values))


def test_times_are_numbers_or_dates() -> None:
    assert times_of("t", rows_with(t=["2001", "1999"]), frozenset()).tolist() == [2001, 1999]
    assert times_of("t", rows_with(t=["1970-01-02", "1970-01-01"]), frozenset()).tolist() == [86_400, 0]


@pytest.mark.parametrize(("value", "sentence"), [("", "t.csv:12: is missing"), ("soon", "t.csv:12: expected a date")])
def test_a_row_without_a_time_is_named(value: str, sentence: str) -> None:
    with pytest.raises(UserError, match=f"--data.time_column t: {sentence}"):
        times_of("t", rows_with(t=[*(f"2024-01-{day:02d}" for day in range(1, 11)), value]), frozenset({""}))
