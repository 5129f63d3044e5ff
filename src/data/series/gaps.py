"""Missing rows and values of a series: where they are, and linear interpolation."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from playbook import UserError
from src.data.series.columns import Columns
from src.data.series.observations import Observations
from src.ops.frequencies import Frequency, later, names_of

MAX_GROWTH = 100  # times the rows that a series may have once its gaps are filled
Gaps = Literal["skip", "fill", "stop"]


class Line(NamedTuple):
    """A series with its steps.

    Args:
        series: in order of time.
        steps: number of each row's step (T,).
        is_filled: whether a row's target or covariate was interpolated (T,).
        num_filled: number of interpolated values of the target and the covariates.
    """

    series: Observations
    steps: np.ndarray
    is_filled: np.ndarray
    num_filled: int


def require_regular(
    series: Observations, is_regular: np.ndarray, frequency: Frequency, problem: Callable[[str, str], Any]
) -> None:
    """Reports the rows beside the grid of steps, with their place and a sentence."""
    for row in np.flatnonzero(~is_regular).tolist():
        when, place = names_of(series.times[row : row + 1])[0], series.places[row]
        problem(place, f"{place}: {series.name}: {when} is beside the grid of steps of {frequency}")


def close_gaps(series: Observations, steps: np.ndarray, columns: Columns, gaps: Gaps, frequency: Frequency) -> Line:
    """Applies an option to the gaps of a series; `skip` leaves them as they are.

    Args:
        series: in order of time.
        steps: number of each row's step (T,).
        columns: what the columns mean.
        gaps: the option.
        frequency: the step.

    Raises:
        UserError: there is a gap, with `stop`, or the series would become very long, with `fill`.
    """
    gap = first_gap(series, steps, columns)
    if gap and gaps == "stop":
        raise UserError(f"--data.gaps stop: {gap}; expected --data.gaps skip or fill")
    if gap and gaps == "fill":
        return fill(series, steps, frequency)
    return Line(series, steps, np.zeros(len(steps), dtype=bool), 0)


def first_gap(series: Observations, steps: np.ndarray, columns: Columns) -> str:
    """A sentence about the first missing row, or missing number of a target or covariate that changes; or nothing.

    Args:
        series: in order of time.
        steps: number of each row's step (T,).
        columns: what the columns mean.
    """
    numbers = dict(zip(columns.target, series.target.T, strict=True))
    numbers |= {name: series.covariates[name] for name in [*columns.past, *columns.known]}
    is_hole = {name: np.isnan(values) for name, values in numbers.items() if values.dtype.kind == "f"}  # (T,) each
    sizes = np.diff(steps) - 1
    gaps = np.flatnonzero(sizes)
    holes = np.flatnonzero(np.any(list(is_hole.values()), axis=0))
    if len(gaps) and (not len(holes) or gaps[0] < holes[0]):
        row = gaps[0]
        count = int(sizes[row])
        rows = f"{count:,} row{'s are' if count > 1 else ' is'} missing"
        return f"{series.places[row]}: {series.name}: {rows} after {names_of(series.times[row : row + 1])[0]}"
    if len(holes):
        row = holes[0]
        when, name = names_of(series.times[row : row + 1])[0], next(name for name in is_hole if is_hole[name][row])
        return f"{series.places[row]}: {series.name}: no value of {name} at {when}"
    return ""


def fill(series: Observations, steps: np.ndarray, frequency: Frequency) -> Line:
    """Fills gaps by linear interpolation between the values before and after; categories keep the one before.

    What is missing before the first or after the last value stays missing.

    Args:
        series: in order of time.
        steps: number of each row's step (T,).
        frequency: the step.

    Raises:
        UserError: the series would become very long.
    """
    length = int(steps[-1]) + 1
    if length > MAX_GROWTH * len(steps):
        raise UserError(
            f"--data.gaps fill: {series.name} has {len(steps):,} rows of {length:,} steps of {frequency}, expected "
            f"at least one in {MAX_GROWTH}, or --data.gaps skip"
        )
    grid = np.arange(length)
    before = np.searchsorted(steps, grid, side="right") - 1  # the row at or before each step
    columns = [_interpolated(grid, steps, column) for column in series.target.T]
    target = np.stack([values for values, _ in columns], axis=1)  # (T, C)
    is_new = np.stack([is_new for _, is_new in columns], axis=1)  # (T, C)
    is_filled = is_new.max(axis=1)
    num_filled = int(is_new.sum())
    covariates = {}
    for name, values in series.covariates.items():
        if values.dtype.kind != "f":
            covariates[name] = values[before]
            continue
        covariates[name], is_new_value = _interpolated(grid, steps, values)
        is_filled = np.logical_or(is_filled, is_new_value)
        num_filled += int(is_new_value.sum())
    times = later(np.full(length, series.times[0]), frequency, grid)
    places = [series.places[row] for row in before.tolist()]
    filled = Observations(series.name, times, places, target, covariates)
    return Line(filled, grid, is_filled, num_filled)


def _interpolated(grid: np.ndarray, steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values at every step (T,), and whether they are interpolated (T,)."""
    known = steps[~np.isnan(values)]
    if not len(known):
        return np.full(len(grid), np.nan), np.zeros(len(grid), dtype=bool)
    whole = np.interp(grid, known, values[~np.isnan(values)], left=np.nan, right=np.nan)
    is_new = ~np.isnan(whole)
    is_new[known] = False
    return whole, is_new
