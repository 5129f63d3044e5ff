"""What a program is given has the names, types, shapes and values that it was exported for."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playbook.deploy.runtime import InputError
from playbook.deploy.runtime.inputs import array_of, check_inputs

SPECS = {
    "tokens": {"name": "tokens", "dtype": "int64", "shape": ["B", "T"]},
    "mask": {"name": "mask", "dtype": "bool", "shape": ["B", "T"]},
    "image": {"name": "image", "dtype": "float32", "shape": ["B", 1, 2]},
}
DIMS = {"B": [1, None], "T": [2, 4]}


def batch(**changed: Any) -> dict[str, np.ndarray]:
    return {
        "tokens": np.zeros((2, 3), np.int64),
        "mask": np.ones((2, 3), bool),
        "image": np.zeros((2, 1, 2), np.float32),
        **changed,
    }


def test_inputs_come_in_the_manifests_order_and_types() -> None:
    given_inputs = batch(image=np.zeros((2, 1, 2), np.float16), tokens=np.zeros((2, 3), np.int32))
    checked = check_inputs(dict(reversed(given_inputs.items())), SPECS, DIMS)
    assert [(name, value.dtype.name) for name, value in checked.items()] == [
        ("tokens", "int64"),
        ("mask", "bool"),
        ("image", "float32"),
    ]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"other": np.zeros(1)}, "other: unknown input; expected tokens, mask, image"),
        ({"tokens": np.zeros((2, 3))}, "tokens: expected int64, got float64"),
        ({"image": np.zeros((2, 1, 2))}, "image: expected float32, got float64"),
        ({"mask": np.ones((2, 3), np.int64)}, "mask: expected bool, got int64"),
        (
            {"image": np.zeros((2, 1, 3), np.float32)},
            r"image: expected shape \(B, 1, 2\), got \(2, 1, 3\)",
        ),
        ({"image": np.zeros((2, 2), np.float32)}, r"image: expected shape \(B, 1, 2\), got \(2, 2\)"),
        ({"image": np.full((2, 1, 2), np.nan, np.float32)}, "image: has values that are not finite"),
        ({"image": np.full((2, 1, 2), np.inf, np.float32)}, "image: has values that are not finite"),
        ({"tokens": np.zeros((2, 5), np.int64)}, r"tokens: expected T of 2 to 4, got 5 in the shape \(2, 5\)"),
        ({"tokens": np.zeros((2, 1), np.int64)}, "tokens: expected T of 2 to 4, got 1"),
        ({"tokens": np.zeros((0, 3), np.int64)}, "tokens: expected B of at least 1, got 0"),
        ({"mask": np.ones((2, 4), bool)}, r"mask: expected T of 3 as in tokens, got 4 in the shape \(2, 4\)"),
        ({"image": np.zeros((3, 1, 2), np.float32)}, "image: expected B of 2 as in tokens, got 3"),
    ],
)
def test_what_does_not_fit_is_a_sentence(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        check_inputs(batch(**changed), SPECS, DIMS)


def test_a_missing_input_is_named() -> None:
    inputs = batch()
    del inputs["mask"]
    with pytest.raises(InputError, match="mask: missing; expected tokens, mask, image"):
        check_inputs(inputs, SPECS, DIMS)


def test_a_single_sample_need_not_fill_a_batch() -> None:
    specs = {"x": {"name": "x", "dtype": "float32", "shape": [4, 2]}}
    check_inputs({"x": np.zeros((1, 2), np.float32)}, specs, {}, is_batch=False)
    with pytest.raises(InputError, match=r"x: expected shape \(2\) for one sample, got \(2, 2\)"):
        check_inputs({"x": np.zeros((1, 2, 2), np.float32)}, specs, {}, is_batch=False)


@pytest.mark.parametrize(
    ("value", "kind", "sentence"),
    [
        ([[1, 2], [3]], "float32", "expected lists of numbers of equal lengths"),
        ([0.5], "int64", "expected int64 values"),
        (["a"], "float32", "expected float32 values"),
        ([True], "float32", "expected float32 values"),
        ([None], "float32", "expected float32 values"),
        ([{}], "int64", "expected int64 values"),
        ([256], "uint8", "expected numbers from 0 to 255"),
        ([2**63], "int64", "expected numbers from"),
        ([2**70], "int64", "expected"),
        ([1], "bool", "expected bool values"),
    ],
)
def test_lists_that_a_type_cannot_represent(value: Any, kind: str, sentence: str) -> None:
    with pytest.raises(InputError, match=f"x: {sentence}"):
        array_of(value, {"name": "x", "dtype": kind})


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=5))
def test_lists_take_the_type_of_the_input(values: list[float]) -> None:
    array = array_of(values, {"name": "x", "dtype": "float32"})
    assert array.dtype == np.float32
    assert array.tolist() == values
    assert array_of([1, 2], {"name": "x", "dtype": "float32"}).tolist() == [1, 2]


def test_arrays_keep_their_type() -> None:
    assert array_of(np.float64(1), {"name": "x", "dtype": "float32"}).dtype == np.float64
