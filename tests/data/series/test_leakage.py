"""No value after an origin reaches the inputs of its forecast, and no row after training the facts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.data.series.tables import Table, days, prepared, write

NUM_ROWS, NUM_TRAIN, NUM_VAL = 40, 28, 4  # of each series
HORIZON = 2
KINDS = ("rain", "sun")
FEW = settings(
    max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")


def random_table(seed: int, share_missing: float) -> Table:
    """Two series with a past covariate, a known one of numbers and one of categories; `b` lacks some of the numbers."""
    random = np.random.default_rng(seed)
    count = 2 * NUM_ROWS
    numbers = random.normal(size=(3, count))
    is_missing = random.random((3, count)) < share_missing
    is_missing[:, [*range(NUM_ROWS), count - 1]] = False  # `a` has all windows, and `b` its length
    numbers[is_missing] = np.nan
    table: Table = {"unique_id": ["a"] * NUM_ROWS + ["b"] * NUM_ROWS, "ds": days(NUM_ROWS) * 2}
    table |= dict(zip(("y", "p", "k"), numbers.tolist(), strict=True))
    return table | {"kind": random.choice(KINDS, count).tolist()}


def with_other_rows(table: Table, seed: int, first: int) -> Table:
    """The table with random values, some of them missing, in the rows from `first` on of both series."""
    other = random_table(seed, 0.2)
    scale = 1 + seed % 100
    changed = {name: list(column) for name, column in table.items()}
    for start in (0, NUM_ROWS):
        for row in range(start + first, start + NUM_ROWS):
            changed["kind"][row] = "snow" if seed % 2 else other["kind"][row]
            for name in ("y", "p", "k"):
                changed[name][row] = other[name][row] * scale
    return changed


def read(folder: Path, table: Table, gaps: str) -> Any:
    options: dict[str, Any] = {"past_covariates": ["p"], "known_covariates": ["k", "kind"], "horizon": HORIZON}
    options |= {"train_size": NUM_TRAIN, "val_size": NUM_VAL}
    return prepared(write(folder / "t.csv", table), gaps=gaps, **options)


def windows_of(data: Any) -> dict[tuple[str, int], Any]:
    """Inputs and target of each window, by series and last row of the look-back."""
    first_day = 18_267
    found = {}
    for windows in (data.train_set, data.val_set, data.test_set):
        for number, origin in enumerate(windows.origins.tolist()):
            lines = windows.timelines
            row = int(lines.times[origin - 1]) // 86_400 - first_day
            found[lines.names[int(lines.owner[origin])], row] = windows[number]
    return found


@given(
    seed=st.integers(0, 10_000),
    other_seed=st.integers(0, 10_000),
    share_missing=st.sampled_from([0.0, 0.2]),
    gaps=st.sampled_from(["skip", "fill"]),
    origin=st.integers(NUM_TRAIN - 1, NUM_ROWS - 2),
)
@FEW
def test_values_after_an_origin_change_no_earlier_input(
    tmp_path: Path, seed: int, other_seed: int, share_missing: float, gaps: str, origin: int
) -> None:
    table = random_table(seed, share_missing)
    if gaps == "fill":
        table["y"][NUM_ROWS + origin] = np.nan  # interpolated between a value before and one after the origin
    before = read(tmp_path, table, gaps)
    after = read(tmp_path, with_other_rows(table, other_seed, origin + 1), gaps)
    assert after.facts == before.facts
    windows, others = windows_of(before), windows_of(after)
    whole = {key for key in windows if key[1] + HORIZON <= origin}
    assert whole
    assert whole == {key for key in others if key[1] + HORIZON <= origin}
    for key in whole:
        assert windows[key][1].equal(others[key][1]), f"target of {key}"
    for key in windows.keys() & others.keys():
        if key[1] <= origin:
            (inputs, _), (other_inputs, _) = windows[key], others[key]
            for name in ("past", "past_covariates"):
                assert inputs[name].equal(other_inputs[name]), f"{name} of {key}"
            if gaps == "skip":  # filled ones depend on later ones of the horizon, which are known as well
                num_known = origin - key[1]  # steps of the horizon up to the origin
                known, other_known = (own["known_covariates"][:num_known] for own in (inputs, other_inputs))
                assert known.equal(other_known), f"known_covariates of {key}"


@given(seed=st.integers(0, 10_000), origin=st.integers(NUM_TRAIN, NUM_ROWS - 3))
@FEW
def test_a_file_that_ends_at_an_origin_is_read_like_its_window(tmp_path: Path, seed: int, origin: int) -> None:
    """`predict --input` sees the rows up to the origin, and the known covariates after it."""
    table = random_table(seed, 0.0)
    data = read(tmp_path, table, "skip")
    rows = [start + row for start in (0, NUM_ROWS) for row in range(origin + 1 + HORIZON)]
    ended = {name: [column[row] for row in rows] for name, column in table.items()}
    for row in (origin + 1, origin + 2, len(rows) // 2 + origin + 1, len(rows) // 2 + origin + 2):
        ended["y"][row] = ""
    names, places = data.expand(["now.csv"], [write(tmp_path / "now.csv", ended)])
    windows = windows_of(data)
    for name, place in zip(names, places, strict=True):
        if (name, origin) not in windows:  # its horizon lies in two splits
            continue
        inputs, expected = data.read(place), windows[name, origin][0]
        assert inputs.keys() == expected.keys()
        for key, value in expected.items():
            torch.testing.assert_close(inputs[key], value, msg=f"{key} of {name} at {origin}")
