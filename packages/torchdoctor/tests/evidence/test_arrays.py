"""What counts as an array among the values of variables."""

from typing import Any

import numpy as np
import pytest
import torch

from torchdoctor.evidence import arrays


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.ones(2, requires_grad=True), np.ones(2)),
        ([1, 2, 3], np.array([1, 2, 3])),
        ([torch.zeros(2), torch.zeros(2)], np.zeros((2, 2))),
        (True, np.asarray(True)),
        (np.float32(0.5), np.asarray(0.5)),
        ([torch.zeros(2), torch.zeros(3)], None),
        (["a", "b"], None),
        (torch.ones(2, dtype=torch.bfloat16), None),
        (torch.ones(2, dtype=torch.complex64), None),
        (np.array(["a"]), None),
        (np.zeros(0), None),
        (object(), None),
    ],
)
def test_array(value: Any, expected: np.ndarray | None) -> None:
    found = arrays.as_array(value)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        np.testing.assert_array_equal(found, expected)


def test_small_tuples_and_dicts_are_looked_into() -> None:
    assert list(arrays.nested_values([(1, 2), {"a": 3}, [4]])) == [(1, 2), 1, 2, {"a": 3}, 3, [4]]
