"""Stops at the same step however often a run is cut off; what the patience counts is Lightning's, and tested there."""

from typing import Any

import pytest

from src.callbacks.early_stopping import EarlyStopping


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"patience": 0}, "patience: expected at least 1 validation, got 0"),
        ({"min_delta": -0.1}, "min_delta: expected at least 0, got -0.1"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        EarlyStopping(**arguments)
