"""Labels and splits of nodes or graphs, from columns of a table or at random."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from playbook import UserError, nearest, split_indices
from src.data.graphs.graph import UNKNOWN
from src.data.graphs.tables import Line, name_of
from src.data.split_files import SPLITS


def read_labels(lines: Sequence[Line], column: str, classes: Sequence[str] = ()) -> tuple[Tensor, list[str]]:
    """The class of each row (N,), -1 where it is missing, and the names of the classes.

    Args:
        lines: of a table.
        column: with the labels.
        classes: known ones of the training, which fix their numbers.

    Raises:
        UserError: there is one class only, or one that training did not have.
    """
    texts = [name_of(line.values.get(column)) for line in lines]
    names = list(classes) or sorted({text for text in texts if text}, key=_order)
    if len(names) < 2:
        raise UserError(f"--data.label {column}: expected two or more classes, got {', '.join(names) or 'none'}")
    numbers = {name: number for number, name in enumerate(names)}
    for text, line in zip(texts, lines, strict=True):
        if text and text not in numbers:
            known = ", ".join(names[:5])
            raise UserError(
                f"--data.root: {line.place}: training had no class {text}, but {known}{nearest(text, names)}"
            )
    return torch.tensor([numbers.get(text, UNKNOWN) for text in texts]), names


def split_rows(
    lines: Sequence[Line], column: str, labels: Tensor, val_share: float, test_share: float, seed: int
) -> dict[str, list[int]]:
    """Numbers of the rows of train, val and test: by a column, or at random with the same shares of each class.

    Rows without a label are of no split.

    Args:
        lines: of a table.
        column: that names the split of each row, if the table has it; empty fields are of none.
        labels: class of each row (N,), -1 if it is unknown.
        val_share: share of the labelled rows for validation.
        test_share: share for testing.
        seed: of the random order.

    Raises:
        UserError: a split is unknown.
    """
    if lines and column in lines[0].values:
        return _by_column(lines, column, labels)
    splits: dict[str, list[int]] = {split: [] for split in SPLITS}
    for number in labels[labels != UNKNOWN].unique().tolist():
        members = (labels == number).nonzero()[:, 0].tolist()
        parts = split_indices(len(members), [1 - val_share - test_share, val_share, test_share], seed + number)
        for split, part in zip(SPLITS, parts, strict=True):
            splits[split] += [members[place] for place in part]
    return {split: sorted(numbers) for split, numbers in splits.items()}


def _by_column(lines: Sequence[Line], column: str, labels: Tensor) -> dict[str, list[int]]:
    of_word = {word: split for split, words in SPLITS.items() for word in words}
    splits: dict[str, list[int]] = {split: [] for split in SPLITS}
    for number, line in enumerate(lines):
        word = name_of(line.values[column]).lower()
        if word and word not in of_word:
            near = nearest(word, list(of_word))
            raise UserError(f"--data.root: {line.place}: {column}: expected train, val or test, got {word}{near}")
        if word and labels[number] != UNKNOWN:
            splits[of_word[word]].append(number)
    return splits


def _order(text: str) -> Any:
    """Numbers in their order, before words."""
    return (0, int(text), "") if text.lstrip("-").isdecimal() else (1, 0, text)
