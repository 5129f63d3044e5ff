"""Covariates as inputs of a net: standardised numbers, and categories as one-hot columns."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from playbook import UserError

MAX_CATEGORIES = 100  # of a column, each of which becomes an input
Statistics = dict[str, Any]  # {"mean": …, "std": …} of numbers, or {"categories": […]}


def learn_statistics(column: str, values: np.ndarray) -> Statistics:
    """What is needed to make a column into inputs.

    Args:
        column: its name.
        values: those of the training rows: numbers, or texts of categories.

    Raises:
        UserError: it has too many categories.
    """
    if values.dtype.kind == "f":
        mean, std = mean_and_std(values[:, None])
        return {"mean": float(mean[0]), "std": float(std[0])}
    categories = sorted(set(values.tolist()))
    if len(categories) > MAX_CATEGORIES:
        raise UserError(
            f"--data: column {column}: expected numbers or at most {MAX_CATEGORIES} categories, "
            f"got {len(categories):,}, such as {', '.join(categories[:3])}"
        )
    return {"categories": categories}


def width_of(statistics: Statistics) -> int:
    """Number of inputs of a column."""
    return len(statistics["categories"]) if "categories" in statistics else 1


def encode(
    columns: Sequence[str], values: Mapping[str, np.ndarray], statistics: Mapping[str, Statistics], num_rows: int
) -> np.ndarray:
    """Inputs (T, P) of some columns; an unknown category is zero in all of its columns, a missing number NaN."""
    parts = [np.zeros((num_rows, 0))]
    for column in columns:
        own = statistics[column]
        if "categories" in own:
            parts.append((values[column][:, None] == np.array(own["categories"])[None]).astype(np.float64))
        else:
            parts.append(((values[column] - own["mean"]) / own["std"])[:, None])
    return np.concatenate(parts, axis=1)


def mean_and_std(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (C,) of the values (T, C) that are not NaN.

    The standard deviation of a constant channel is 1. A channel without values has 0 and 1.
    """
    count = np.maximum((~np.isnan(values)).sum(axis=0), 1)
    mean = np.nansum(values, axis=0) / count
    std = np.sqrt(np.nansum((values - mean) ** 2, axis=0) / count)
    is_constant = std <= 1e-12 * np.abs(mean)  # up to rounding
    return mean, np.where(is_constant, 1.0, std)
