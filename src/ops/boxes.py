"""Boxes as corners and as distances from a point, in addition to torchvision.ops."""

import torch
from torch import Tensor
from torchvision.ops import box_area, box_iou


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
    """Which points (N, 2) lie in which boxes (…, M, 4): (…, M, N). Sides count as at least `least` (N, 1)."""
    top_left, bottom_right = boxes[..., None, :].chunk(2, dim=-1)  # (…, M, 1, 2) each
    reach = torch.maximum(bottom_right - top_left, least) / 2  # (…, M, N, 2)
    return ((points - (top_left + bottom_right) / 2).abs() <= reach).all(-1)


def stack_targets(targets: list[dict[str, Tensor]], like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Pads the objects of a batch to the largest number M of objects in an image, at least 1.

    Args:
        targets: B dicts of boxes (N, 4) and labels (N,); N may differ.
        like: a tensor of the device and type that the boxes take.

    Returns:
        boxes (B, M, 4), labels (B, M), and which rows are objects (B, M).
    """
    num_objects = [len(target["labels"]) for target in targets]
    shape = len(targets), max(1, *num_objects)
    boxes, labels = like.new_zeros(*shape, 4), like.new_zeros(shape, dtype=torch.long)
    for i, (target, count) in enumerate(zip(targets, num_objects, strict=True)):
        boxes[i, :count], labels[i, :count] = target["boxes"], target["labels"]
    counts = torch.tensor(num_objects, device=like.device)
    return boxes, labels, torch.arange(shape[1], device=like.device) < counts[:, None]


def match_boxes(boxes: Tensor, labels: Tensor, objects: Tensor, classes: Tensor, min_iou: float = 0.5) -> Tensor:
    """The object that each box hits (M,), or -1: the free one of its class with the largest IoU, if that is enough.

    Objects are taken in the order of the boxes, as in COCO's evaluation of boxes that are sorted by score.

    Args:
        boxes: (M, 4).
        labels: of the boxes (M,).
        objects: boxes (N, 4).
        classes: of the objects (N,).
        min_iou: smallest IoU of a hit.
    """
    overlap = box_iou(boxes, objects).masked_fill(labels[:, None] != classes, -1.0)  # (M, N)
    hits = torch.full_like(labels, -1)
    for number in range(len(boxes) if len(objects) else 0):
        iou, place = overlap[number].max(dim=0)
        if iou >= min_iou:
            hits[number] = place
            overlap[:, place] = -1.0
    return hits


def are_covered(boxes: Tensor, labels: Tensor, regions: Tensor, classes: Tensor, min_share: float = 0.5) -> Tensor:
    """Whether a region of its class, such as a crowd, covers a share of a box (M,).

    Args:
        boxes: (M, 4).
        labels: of the boxes (M,).
        regions: boxes (N, 4).
        classes: of the regions (N,).
        min_share: smallest share of the box's area.
    """
    sides = torch.minimum(boxes[:, None, 2:], regions[:, 2:]) - torch.maximum(boxes[:, None, :2], regions[:, :2])
    share = sides.clamp(min=0).prod(dim=-1) / box_area(boxes)[:, None]  # (M, N)
    return ((share >= min_share) & (labels[:, None] == classes)).any(dim=1)
