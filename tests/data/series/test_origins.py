"""Origins of windows against a loop that looks at every row."""

import numpy as np
import pytest

from src.data.series.origins import find_origins


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("split", [(0, 30), (20, 45), (40, 70)])
def test_origins_against_a_loop(seed: int, split: tuple[int, int]) -> None:
    random, look_back, horizon = np.random.default_rng(seed), 4, 3
    steps = np.cumsum(random.choice([1, 1, 1, 1, 1, 1, 1, 1, 1, 3], size=60))
    is_missing, lacks_past, is_filled = (random.random(60) < 0.04 for _ in range(3))
    expected = []
    for origin in range(60):
        rows = range(origin - look_back, origin + horizon)
        is_inside = rows.start >= 0 and origin >= split[0] and rows.stop <= min(split[1], 60)
        if not is_inside or any(steps[row + 1] - steps[row] != 1 for row in rows[:-1]):
            continue
        if any(is_missing[row] for row in rows) or any(lacks_past[row] for row in range(rows.start, origin)):
            continue
        if not is_filled[origin - 1] and not is_filled[rows[-1]]:
            expected.append(origin)
    found = find_origins(steps, is_missing, lacks_past, is_filled, look_back, horizon, split)
    assert found.tolist() == expected
