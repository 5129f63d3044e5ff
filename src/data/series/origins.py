"""Where windows begin: at every row of a split, without crossing a gap."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from src.data.series.gaps import Line
from src.data.series.splits import Splits
from src.data.series.windows import Timelines

PARTS = ("train", "val", "test")


class Origins(NamedTuple):
    """The windows of all series.

    Args:
        rows: of each split, the first forecast row of every window (N_windows,), counted over all series.
        num_possible: number of windows that there would be without gaps.
        num_behind: number of rows after those of the last split.
    """

    rows: dict[str, Tensor]
    num_possible: int
    num_behind: int


def split_origins(lines: Sequence[Line], timelines: Timelines, splits: Splits, look_back: int, horizon: int) -> Origins:
    """Finds the windows of each split of each series.

    Args:
        lines: the series.
        timelines: the same series as tensors.
        splits: how each one is divided.
        look_back: L.
        horizon: H.
    """
    known = timelines.covariates[:, : timelines.num_known]
    is_missing = torch.cat([timelines.values, known], dim=1).isnan().any(dim=1).numpy()  # (N,)
    lacks_past = timelines.covariates.isnan().any(dim=1).numpy()  # (N,)
    found: dict[str, list[np.ndarray]] = {part: [] for part in PARTS}
    num_possible = num_behind = first_row = 0
    for line in lines:
        own = slice(first_row, first_row + len(line.steps))
        ends = splits.borders(len(line.steps), horizon)
        for part, (start, end) in zip(PARTS, pairwise((0, *ends)), strict=True):
            num_possible += max(end - max(start, look_back) - horizon + 1, 0)
            rows = find_origins(
                line.steps, is_missing[own], lacks_past[own], line.is_filled, look_back, horizon, (start, end)
            )
            found[part].append(rows + first_row)
        num_behind += len(line.steps) - ends[-1]
        first_row = own.stop
    rows_of = {part: torch.from_numpy(np.concatenate(rows)) for part, rows in found.items()}
    return Origins(rows_of, num_possible, num_behind)


def find_origins(
    steps: np.ndarray,
    is_missing: np.ndarray,
    lacks_past: np.ndarray,
    is_filled: np.ndarray,
    look_back: int,
    horizon: int,
    split: tuple[int, int],
) -> np.ndarray:
    """The first forecast row of every window of a split, with stride 1.

    The forecast rows lie in the split; the look-back may reach into rows before it. No window crosses a gap. The last
    row of a look-back and of a window is never a filled one: its value would depend on rows after the window.

    Args:
        steps: number of each row's step (T,).
        is_missing: whether a target or known covariate of the row is missing (T,).
        lacks_past: whether a past covariate of the row is missing (T,).
        is_filled: whether the row was interpolated (T,).
        look_back: L.
        horizon: H.
        split: first row, and the row after the last one; training begins at 0.
    """
    start, end = max(split[0], look_back), min(split[1], len(steps))
    origins = np.arange(start, end - horizon + 1)
    if not len(origins):
        return origins
    missing, lacking = (np.concatenate([[0], np.cumsum(part)]) for part in (is_missing, lacks_past))
    first, last = origins - look_back, origins + horizon - 1
    is_whole: np.ndarray = steps[last] - steps[first] == look_back + horizon - 1
    is_whole &= missing[last + 1] == missing[first]
    is_whole &= lacking[origins] == lacking[first]
    return origins[is_whole & ~is_filled[origins - 1] & ~is_filled[last]]
