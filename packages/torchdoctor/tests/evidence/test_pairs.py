"""Inputs and labels among the variables of a line, on arrays whose order is known."""

import numpy as np
import pytest
import torch

from torchdoctor.evidence import pairs
from torchdoctor.evidence.pairs import Training


@pytest.fixture
def labelled() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5))
    return x, (x[:, 0] > 0).astype(np.int64)


def test_rows_and_labels_are_found_among_local_values(labelled: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = labelled
    local = {"x": torch.from_numpy(x), "parts": (x, y), "named": {"y": list(y)}, "short": x[:9], "other": y + 5, "n": 3}
    inputs, labels = pairs.candidates(local, Training(x, y, None))
    assert [len(found) for found in inputs] == [200, 200]
    assert [len(found) for found in labels] == [200, 200]


def test_scaled_labels_are_recognised_in_any_order() -> None:
    labels = np.random.default_rng(0).normal(size=200)
    scaled = pairs._rescaled(3 * labels[::-1] + 7, labels)
    assert scaled is not None
    np.testing.assert_allclose(scaled, labels[::-1])
    assert pairs._rescaled(labels**3, labels) is None
    assert pairs._rescaled(labels[:100], labels) is None
    found = pairs.candidates({"offset": 3 * labels + 7}, Training(labels, labels, labels))[1]
    np.testing.assert_allclose(found, [labels])
    order = np.random.default_rng(4).permutation(len(labels))
    scaled = pairs._rescaled(3 * labels[order] + 7, labels[:150])
    assert scaled is not None, "some left out"
    np.testing.assert_allclose(scaled, labels[order])


@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_the_share_of_labels_that_stayed(labelled: tuple[np.ndarray, np.ndarray], shift: float) -> None:
    x, y = labelled
    order = np.random.default_rng(1).permutation(200)
    scaled = (x[order] - shift) / 3
    assert pairs.share_of_kept_labels(x, y, Training(scaled, y[order], None)) == 1.0
    assert pairs.share_of_kept_labels(x, y, Training(scaled, 1 - y[order], None)) == 0.0
    assert pairs.share_of_kept_labels(x[:, :4], y, Training(scaled, y[order], None)) is None, "other columns"
    assert (
        pairs.share_of_kept_labels(np.random.default_rng(2).normal(size=(200, 5)), y, Training(x, y, None)) is None
    ), "other rows"
