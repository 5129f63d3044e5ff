"""Boxes as corners and as distances from a point, where torchvision.ops has nothing for it."""

import torch
from torch import Tensor


def grid_points(height: int, width: int, stride: int, like: Tensor) -> Tensor:
    """Centres of the cells of a feature map in pixels of the image, row by row.

    Args:
        height: rows of the feature map.
        width: its columns.
        stride: pixels from one cell to the next.
        like: gives device and precision.

    Returns:
        x and y (height · width, 2).
    """
    y, x = ((torch.arange(count, device=like.device, dtype=like.dtype) + 0.5) * stride for count in (height, width))
    return torch.stack([x.repeat(height), y.repeat_interleave(width)], dim=-1)


def distances_to_boxes(points: Tensor, distances: Tensor) -> Tensor:
    """Corners (…, 4), x1 y1 x2 y2, from points (…, 2) and the distances to left, top, right and bottom (…, 4)."""
    return torch.cat([points - distances[..., :2], points + distances[..., 2:]], dim=-1)


def boxes_to_distances(points: Tensor, boxes: Tensor) -> Tensor:
    """Distances (…, 4) from points (…, 2) to the left, top, right and bottom of boxes (…, 4); negative outside."""
    return torch.cat([points - boxes[..., :2], boxes[..., 2:] - points], dim=-1)


def are_inside(points: Tensor, boxes: Tensor, least: Tensor) -> Tensor:
    """Which points (N, 2) lie in which boxes (…, M, 4): (…, M, N). A box counts as at least `least` (N, 1) long."""
    top_left, bottom_right = boxes[..., None, :].chunk(2, dim=-1)  # (…, M, 1, 2) each
    reach = torch.maximum(bottom_right - top_left, least) / 2  # (…, M, N, 2)
    return ((points - (top_left + bottom_right) / 2).abs() <= reach).all(-1)
