"""Selects boxes by non-maximum suppression, as torchvision does, in NumPy."""

from collections.abc import Mapping
from typing import Any

import numpy as np

MOST_SHIFTED = 1000  # boxes that torchvision suppresses together on a CPU, each class moved apart from the others


def detections(
    boxes: np.ndarray, scores: np.ndarray, size: tuple[int, int], plan: Mapping[str, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes (M, 4), labels (M,) and scores (M,) of an image, the highest score first.

    Args:
        boxes: (N, 4).
        scores: (N, K).
        size: height and width of the image, to which boxes are clipped.
        plan: `score_threshold`, `max_candidates`, `nms_iou` and `max_detections`.
    """
    boxes, scores = boxes.astype(np.float32), scores.astype(np.float32)
    place, label = np.nonzero(scores.astype(np.float32) > np.float32(plan["score_threshold"]))
    values = scores[place, label]
    order = np.argsort(-values, kind="stable")[: plan["max_candidates"]]
    label, values = label[order], values[order]
    limits = np.array([size[1], size[0]] * 2, dtype=np.float32)
    corners = boxes[place[order]].clip(0, limits)
    kept = batched_nms(corners, values, label, plan["nms_iou"])[: plan["max_detections"]]
    return corners[kept], label[kept], values[kept]


def batched_nms(boxes: np.ndarray, scores: np.ndarray, labels: np.ndarray, iou: float) -> np.ndarray:
    """Indices of the boxes that stay, the highest score first; only boxes of one class suppress each other.

    Args:
        boxes: (N, 4), float32.
        scores: (N,).
        labels: (N,).
        iou: overlap above which the box with the lower score is left out.
    """
    if not len(boxes):
        return np.zeros(0, dtype=np.int64)
    if len(boxes) <= MOST_SHIFTED:
        shift = labels.astype(np.float32) * (boxes.max() + np.float32(1))
        return nms(boxes + shift[:, None], scores, iou)
    parts = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    kept = np.sort(np.concatenate([part[nms(boxes[part], scores[part], iou)] for part in parts]))
    return kept[np.argsort(-scores[kept], kind="stable")]


def nms(boxes: np.ndarray, scores: np.ndarray, iou: float) -> np.ndarray:
    """Indices of the boxes (N, 4) that no box with a higher score overlaps by more than `iou`."""
    left, top, right, bottom = boxes.T
    areas = (right - left) * (bottom - top)
    order = np.argsort(-scores, kind="stable")
    kept = []
    while len(order):
        first, order = order[0], order[1:]
        kept.append(first)
        wide = np.minimum(right[first], right[order]) - np.maximum(left[first], left[order])
        high = np.minimum(bottom[first], bottom[order]) - np.maximum(top[first], top[order])
        shared = wide.clip(0) * high.clip(0)
        with np.errstate(invalid="ignore", divide="ignore"):  # boxes without an area
            overlap = shared / (areas[first] + areas[order] - shared)
        order = order[~(overlap.astype(np.float64) > iou)]  # torchvision compares in double precision
    return np.array(kept, dtype=np.int64)
