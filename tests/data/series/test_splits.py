"""Borders of the splits."""

from typing import Any

import pytest

from src.data.series.splits import Splits

DEFAULTS: dict[str, Any] = {
    "val_share": 0.1,
    "test_share": 0.2,
    "train_size": None,
    "val_size": None,
    "test_size": None,
}


@pytest.mark.parametrize(
    ("options", "borders"),
    [
        ({}, (70, 80, 100)),
        ({"test_share": 0.0}, (90, 100, 100)),
        ({"val_share": 0.01}, (75, 80, 100)),  # at least the horizon
        ({"train_size": 60, "val_size": 20}, (60, 80, 100)),
        ({"train_size": 60, "val_size": 20, "test_size": 10}, (60, 80, 90)),
        ({"val_size": 20, "test_size": 10}, (70, 90, 100)),
        ({"val_size": 20}, (80, 100, 100)),
        ({"train_size": 90, "val_size": 20, "test_size": 10}, (90, 100, 100)),
    ],
)
def test_borders(options: dict[str, Any], borders: tuple[int, int, int]) -> None:
    assert Splits(**(DEFAULTS | options)).borders(100, 5) == borders


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"val_share": 0.0}, r"val_share: expected a share in \(0, 1\), got 0.0"),
        ({"test_share": 0.9}, r"test_share: expected a share in \[0, 1 - val_share\), got 0.9"),
        ({"train_size": 0, "val_size": 1}, "train_size: expected a positive number of rows, got 0"),
        ({"train_size": 60}, "val_size: expected a number of rows together with train_size, got none"),
    ],
)
def test_contradictions(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Splits(**(DEFAULTS | options)).check()
