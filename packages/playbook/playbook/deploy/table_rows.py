"""Rows of a table that a model of its columns reads: those that encoded rows come from, and one of typical values."""

from collections.abc import Mapping
from datetime import UTC, datetime
from statistics import NormalDist
from typing import Any

import numpy as np

FIRST, LAST = -62_135_596_800, 253_402_300_799  # seconds since 1970 of the dates that Python has
UNSEEN = "(unseen)"  # in place of a category that training did not have


def decoded_rows(batch: Mapping[str, np.ndarray], plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows whose encoding is closest to a batch; numbers have six digits.

    Args:
        batch: numbers (B, N) and categories (B, M), as `TableReader` encodes them.
        plan: the manifest's `preprocessing`.
    """
    numbers, categories = (iter(batch.get(name, np.empty((0, 0))).T) for name in ("numbers", "categories"))
    columns: dict[str, list[Any]] = {}
    for column in plan["columns"]:
        if column["kind"] == "category":
            texts = [UNSEEN, *column["codes"]]
            columns[column["name"]] = [texts[code] or None for code in next(categories)]
            continue
        if column["kind"] == "number":
            values = [float(f"{value:.6g}") for value in _unscaled(next(numbers), column).tolist()]
        else:
            parts = {part: [next(numbers) for _ in range(1 if part == "time" else 2)] for part in column["parts"]}
            values = [_date(seconds) for seconds in _unscaled(parts["time"][0], column).tolist()]
        if column["indicates"]:
            values = [None if code == 2 else value for value, code in zip(values, next(categories), strict=True)]
        columns[column["name"]] = values
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def typical_row(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The median of each number and date, and the first of each column's categories."""
    row: dict[str, Any] = {}
    for column in plan["columns"]:
        if column["kind"] == "category":
            row[column["name"]] = next(filter(None, column["codes"]), None)
        else:
            row[column["name"]] = column["fill"] if column["kind"] == "number" else _date(column["fill"])
    return row


def _unscaled(values: np.ndarray, column: Mapping[str, Any]) -> np.ndarray:
    values = values.astype(np.float64)
    if "quantiles" not in column:
        return values * column["scale"] + column["center"]
    quantiles = column["quantiles"]
    shares = [NormalDist().cdf(value) for value in values]
    return np.interp(shares, np.linspace(0, 1, len(quantiles)), quantiles)


def _date(seconds: float) -> str:
    # rounding of encoded dates may lead beyond 9999-12-31, which often stands for no end
    return datetime.fromtimestamp(min(max(round(seconds), FIRST), LAST), UTC).isoformat()
