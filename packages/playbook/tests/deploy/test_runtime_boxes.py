"""Non-maximum suppression equals torchvision's, on random boxes and at its corner cases."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.ops import batched_nms as torch_nms

from playbook.deploy.runtime.boxes import batched_nms, detections


def random_boxes(number: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 60, (number, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(0, 40, (number, 2))], axis=1).astype(np.float32)
    return boxes, rng.permutation(number).astype(np.float32) / max(number, 1), rng.integers(0, 3, number)


def expected_of(boxes: np.ndarray, scores: np.ndarray, labels: np.ndarray, iou: float) -> list[int]:
    return torch_nms(torch.from_numpy(boxes), torch.from_numpy(scores), torch.from_numpy(labels), iou).tolist()


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 60), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_the_same_boxes_stay_in_the_same_order(number: int, iou: float, seed: int) -> None:
    boxes, scores, labels = random_boxes(number, seed)
    expected = expected_of(boxes, scores, labels, iou)
    assert batched_nms(boxes, scores, labels, iou).tolist() == expected


def test_of_over_1000_boxes_each_class_is_suppressed_on_its_own() -> None:
    boxes, scores, labels = random_boxes(1500, 0)
    expected = expected_of(boxes, scores, labels, 0.6)
    assert batched_nms(boxes, scores, labels, 0.6).tolist() == expected


def test_boxes_of_integers_at_the_threshold() -> None:
    """IoU of exactly 1/2: it must be above the threshold to suppress."""
    boxes = np.array([[0, 0, 2, 2], [0, 0, 2, 1], [0, 0, 0, 0], [0, 0, 0, 0]], np.float32)
    scores, labels = np.array([0.9, 0.8, 0.7, 0.6], np.float32), np.zeros(4, np.int64)
    for iou in (0.5, 0.499, 0.501):
        expected = expected_of(boxes, scores, labels, iou)
        assert batched_nms(boxes, scores, labels, iou).tolist() == expected, iou


@pytest.mark.parametrize("threshold", [0.01, 0.99, 2.0])
def test_boxes_are_clipped_and_counted(threshold: float) -> None:
    boxes = np.array([[-5, -5, 10, 50], [90, 90, 200, 200], [20, 20, 30, 30]], np.float32)
    scores = np.array([[0.2, 0.0], [0.0, 1.0], [0.5, 0.4]], np.float32)
    plan = {"score_threshold": threshold, "max_candidates": 3, "nms_iou": 0.5, "max_detections": 2}
    corners, labels, values = detections(boxes, scores, (40, 100), plan)
    expected = {
        0.01: ([[90, 40, 100, 40], [20, 20, 30, 30]], [1, 0], [1.0, 0.5]),
        0.99: ([[90, 40, 100, 40]], [1], [1.0]),
        2.0: ([], [], []),
    }[threshold]
    assert (corners.tolist(), labels.tolist(), values.tolist()) == expected
