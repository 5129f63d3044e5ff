"""The inputs that a net takes, and what is said of others."""

from typing import Any

import pytest
import torch

from src.ops.series_inputs import check_inputs, input_shapes

SHAPES = input_shapes(6, 4, 2, 3, 0, 5)


def inputs_of(**sizes: tuple[int, ...] | None) -> dict[str, Any]:
    shapes = {"past": (6, 2), "past_covariates": (6, 3), "known_covariates": None, "static": (5,), **sizes}
    return {name: None if size is None else torch.zeros(7, *size) for name, size in shapes.items()}


def test_shapes_follow_the_counts() -> None:
    expected = {"past": (6, 2), "past_covariates": (6, 3), "known_covariates": (4, 0), "static": (5,)}
    assert expected == SHAPES
    check_inputs(SHAPES, **inputs_of())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"past": (5, 2)}, r"look_back, num_channels: expected past \(B, 6, 2\), got \(B, 5, 2\)"),
        ({"past_covariates": None}, r"num_past_covariates: expected past_covariates \(B, 6, 3\), got none"),
        ({"known_covariates": (4, 1)}, r"num_known_covariates: expected known_covariates none, got \(B, 4, 1\)"),
        ({"static": (4,)}, r"num_static: expected static \(B, 5\), got \(B, 4\)"),
    ],
)
def test_no_input_is_ignored(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_inputs(SHAPES, **inputs_of(**wrong))


@pytest.mark.parametrize("position", range(6))
def test_counts_out_of_range(position: int) -> None:
    counts = [1, 1, 1, 0, 0, 0]
    counts[position] -= 1
    names = ["look_back", "horizon", "num_channels", "num_past_covariates", "num_known_covariates", "num_static"]
    with pytest.raises(ValueError, match=f"{names[position]}: expected at least"):
        input_shapes(*counts)
