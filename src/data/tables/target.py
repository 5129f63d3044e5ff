"""The column that a net predicts: classes or numbers."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from playbook import TableReader, UserError, category_of, is_missing, nearest, number_of
from src.data.tables.kinds import infer_kind
from src.data.tables.rows import Rows

TargetKind = Literal["auto", "classes", "number"]
MOST_CLASSES = 20  # of a target of whole numbers, up to which they are taken for classes


def is_of_classes(values: Sequence[Any], kind: TargetKind, missing: frozenset[str]) -> bool:
    """Whether the values of a target are classes.

    Args:
        values: of the rows of the training file.
        kind: classes or number, or auto, which takes whole numbers of at most 20 values and all words for classes.
        missing: texts that stand for no value.
    """
    if kind != "auto":
        return kind == "classes"
    present = [value for value in values if not is_missing(value, missing)]
    if infer_kind(present, missing) != "number":
        return True
    distinct = {category_of(value, missing) for value in present}
    return _are_whole(distinct) and len(distinct) <= MOST_CLASSES


def target_problems(values: Sequence[Any], has_classes: bool, missing: frozenset[str]) -> dict[int, str]:
    """Index of each row without a usable target, and a sentence about it."""
    if has_classes:
        return {index: "is missing" for index, value in enumerate(values) if is_missing(value, missing)}
    try:
        suspects = np.flatnonzero(np.isnan(TableReader.parse(values, "number", missing))).tolist()
    except ValueError:  # InputError of the runtime
        suspects = range(len(values))
    problems = {}
    for index in suspects:
        try:
            if is_missing(values[index], missing):
                problems[index] = "is missing"
            elif math.isnan(number_of(values[index], missing)):
                problems[index] = f"expected a finite number, got {values[index]}"
        except ValueError as error:
            problems[index] = str(error)
    return problems


def learn_classes(name: str, rows: Rows, missing: frozenset[str]) -> list[str]:
    """The classes of a target, in the order of their numbers.

    Raises:
        UserError: there is one only, or most rows have a class of their own.
    """
    texts = {category_of(value, missing) for value in rows.values[name]}
    classes = sorted(texts, key=int if _are_whole(texts) else None)
    if len(classes) < 2:
        raise UserError(f"--data.target {name}: every row has {classes[0]}, expected two or more classes")
    if len(classes) > len(rows) / 2:
        raise UserError(
            f"--data.target {name}: {len(classes):,} different classes in {len(rows):,} rows; expected "
            "classes with several rows each, or --data.target_kind number"
        )
    return classes


def read_targets(name: str, rows: Rows, classes: Sequence[str] | None, missing: frozenset[str]) -> Tensor:
    """Targets (B,): class numbers, or without classes numbers in their own units.

    Raises:
        UserError: a class is unknown.
    """
    values = rows.values[name]
    if classes is None:
        return torch.from_numpy(TableReader.parse(values, "number", missing)).float()
    numbers = {text: number for number, text in enumerate(classes)}
    texts = TableReader.parse(values, "category", missing).tolist()
    for text, place in zip(texts, rows.places, strict=True):
        if text not in numbers:
            known = ", ".join(classes[:5])
            raise UserError(f"--data.root: {place}: training had no class {text}, but {known}{nearest(text, classes)}")
    return torch.tensor([numbers[text] for text in texts])


def _are_whole(texts: set[str]) -> bool:
    return all(text.lstrip("-").isdecimal() for text in texts)
