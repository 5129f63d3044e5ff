"""Answers with several labels."""

import math

import numpy as np
import pytest

from playbook.deploy.runtime import InputError
from playbook.deploy.runtime.answers import label_answers

NAMES = ["bird", "rain", "wind"]


def test_labels_above_the_threshold_and_the_likeliest() -> None:
    first, second = label_answers(np.array([[2.0, 1.0, -1.0], [-3.0, -2.0, -1.0]], np.float32), NAMES, 0.6, 2)
    assert first == {
        "labels": "bird, rain",
        "label": "bird",
        "probability": pytest.approx(1 / (1 + math.exp(-2))),
        "label_2": "rain",
        "probability_2": pytest.approx(1 / (1 + math.exp(-1))),
    }
    assert (second["labels"], second["label"], second["label_2"]) == ("", "wind", "rain")


@pytest.mark.parametrize(
    ("score", "top", "message"),
    [(1.5, 1, r"score: expected a number in \[0, 1\], got 1.5"), (0.5, 0, "top: expected at least 1 class, got 0")],
)
def test_options_out_of_range(score: float, top: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        label_answers(np.zeros((1, 3), np.float32), NAMES, score, top)
