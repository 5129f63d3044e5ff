"""Confidence intervals of test metrics, by drawing test samples again (Efron 1979)."""

import csv
import math
from pathlib import Path

import numpy as np

NUM_RESAMPLES = 1000
SHARE = 0.95
MOST_DRAWN = 20_000  # samples


def read_samples(path: Path) -> tuple[list[str], dict[str, np.ndarray]]:
    """Ids and values by name of the test samples in a test.csv; empty where there is none, or one that was damaged."""
    if not path.is_file():
        return [], {}
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file)) or [[]]
    rows = [row for row in rows if len(row) == len(header)]
    try:
        values = {name: np.array([float(row[k]) for row in rows]) for k, name in enumerate(header) if k}
    except ValueError:
        return [], {}
    return [row[0] for row in rows], values if rows else {}


def interval(values: np.ndarray) -> tuple[float, float]:
    """The interval that holds 95 % of the means of resampled values (N,); seeded, so that it is always the same.

    Of many samples, the normal distribution, which resampled means then follow, saves the draws.
    """
    values = values[np.isfinite(values)]  # an image without a counted pixel has no value
    if len(values) > MOST_DRAWN:
        half = 1.96 * float(values.std()) / math.sqrt(len(values))
        return float(values.mean()) - half, float(values.mean()) + half
    generator = np.random.default_rng(0)
    draws = (generator.integers(0, len(values), len(values)) for _ in range(NUM_RESAMPLES))
    means = [values[draw].mean() for draw in draws]
    low, high = np.quantile(means, [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return float(low), float(high)
