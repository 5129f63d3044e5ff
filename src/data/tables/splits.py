"""Which rows of a table are for training, validation and testing."""

import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold, GroupShuffleSplit, KFold, StratifiedKFold, train_test_split

from playbook import UserError, number_of, seconds_of
from src.data.split_files import SPLITS
from src.data.tables.kinds import infer_kind
from src.data.tables.rows import Rows


def cut_by_chance(
    num_rows: int, share: float, seed: int, classes: Sequence[Any] | None, groups: Sequence[Hashable] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Divides rows by chance, as scikit-learn does with the same seed.

    Args:
        num_rows: number of rows.
        share: share of the second part, rounded up.
        seed: of the order.
        classes: class of each row, for the same shares of them in both parts; a class with a single row counts as the
            most frequent one.
        groups: group of each row, which stays in one part.

    Returns:
        Indices of the two parts.
    """
    rows = np.arange(num_rows)
    size = int(np.ceil(share * num_rows - 1e-9))
    if groups is not None:
        cut = GroupShuffleSplit(n_splits=1, test_size=share, random_state=seed)
        return next(cut.split(rows, groups=groups))
    strata = None
    if classes is not None:
        names, numbers, counts = np.unique(classes, return_inverse=True, return_counts=True)
        strata = np.where(counts[numbers] > 1, numbers, counts.argmax())
        if counts.max() < 2 or len(names) > min(size, num_rows - size):  # scikit-learn wants each class in both parts
            strata = None
    first, second = train_test_split(rows, test_size=size, random_state=seed, stratify=strata)
    return np.asarray(first), np.asarray(second)


def cut_by_time(times: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """The earlier rows, and the later ones, of which the share is at most that asked for: no moment is in both.

    Args:
        times: moment of each row.
        share: share of the later part.
    """
    order = np.argsort(times, kind="stable")
    border = times[order[len(times) - max(int(share * len(times)), 1)]]
    later = times >= border if (times < border).any() else times > border
    return np.flatnonzero(~later), np.flatnonzero(later)


def cut_fold(
    num_rows: int, folds: int, fold: int, seed: int, classes: Sequence[Any] | None, groups: Sequence[Hashable] | None
) -> tuple[np.ndarray, np.ndarray]:
    """All folds but one, and that one.

    Args:
        num_rows: number of rows.
        folds: number of folds, at least 2.
        fold: the one of the second part, counted from 0.
        seed: of the order.
        classes: class of each row, for the same shares of them in every fold.
        groups: group of each row, which stays in one fold.

    Raises:
        UserError: there are more folds than rows or groups.
    """
    rows = np.arange(num_rows)
    if groups is not None:
        cut = GroupKFold(folds, shuffle=True, random_state=seed)
    elif classes is not None and np.unique(classes, return_counts=True)[1].max() >= folds:
        cut = StratifiedKFold(folds, shuffle=True, random_state=seed)
    else:
        cut = KFold(folds, shuffle=True, random_state=seed)
    try:
        with warnings.catch_warnings():  # of classes with fewer rows than folds, which some folds then lack
            warnings.simplefilter("ignore", UserWarning)
            return list(cut.split(rows, classes, groups))[fold]
    except ValueError as error:
        raise UserError(f"--data.folds {folds}: {error}") from error


def cut_by_column(name: str, rows: Rows) -> dict[str, np.ndarray]:
    """Indices of the rows of each split that a column names.

    Raises:
        UserError: a row names none, or no row is for training or validation.
    """
    aliases = {alias: split for split, aliases in SPLITS.items() for alias in aliases}
    splits = []
    for value, place in zip(rows.values[name], rows.places, strict=True):
        split = aliases.get(str(value).strip().lower())
        if split is None:
            raise UserError(f"--data.split_column {name}: {place}: expected train, val or test, got {value!r}")
        splits.append(split)
    cut = {split: np.flatnonzero([own == split for own in splits]) for split in SPLITS if split in splits}
    if absent := [split for split in ("train", "val") if split not in cut]:
        raise UserError(f"--data.split_column {name}: no row says {absent[0]}")
    return cut


def times_of(name: str, rows: Rows, missing: frozenset[str]) -> np.ndarray:
    """Moment of each row (B,), from numbers or dates.

    Raises:
        UserError: a row has none.
    """
    values = rows.values[name]
    read = number_of if infer_kind(values, missing) == "number" else seconds_of
    times = np.empty(len(rows))
    for index, (value, place) in enumerate(zip(values, rows.places, strict=True)):
        try:
            times[index] = read(value, missing)
        except ValueError as error:
            raise UserError(f"--data.time_column {name}: {place}: {error}") from error
        if np.isnan(times[index]):
            raise UserError(f"--data.time_column {name}: {place}: is missing, expected a date or a number")
    return times
