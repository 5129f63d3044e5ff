"""Large images in overlapping tiles: class maps blended over the seams, boxes merged across them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torchvision.ops import box_iou

STEP = 32  # pixels; tiles start at multiples of it, so that nets which halve five times see the same pixels together
SAME = 0.5  # IoU of two boxes in the region that two tiles share, from which on they are one object
TOUCH = 2.0  # pixels from a seam within which a box counts as cut off by it


@dataclass(frozen=True)
class Tile:
    """Where a tile lies in its image, in pixels: top, left, bottom and right."""

    top: int
    left: int
    bottom: int
    right: int


def tiles_of(height: int, width: int, size: int) -> list[Tile]:
    """Covers an image with tiles that overlap by at least a quarter.

    The last row and column of tiles may reach out of the image, by less than 32 pixels.

    Args:
        height: of the image in pixels.
        width: of the image in pixels.
        size: of the tiles; an image that is smaller has one tile.
    """
    return [
        Tile(top, left, top + high, left + wide)
        for top, high in _spans(height, size)
        for left, wide in _spans(width, size)
    ]


def overlap_of(size: int) -> int:
    """Least number of pixels that two neighbouring tiles share."""
    return size - _stride(size)


def _stride(size: int) -> int:
    return max(STEP, (size - size // 4) // STEP * STEP)


def _spans(length: int, size: int) -> list[tuple[int, int]]:
    """Start and length of the tiles along one side."""
    if length <= size:
        return [(0, -(-length // STEP) * STEP)]
    last = -(-(length - size) // STEP) * STEP
    return [
        (min(start, last), size)
        for start in range(0, last + _stride(size), _stride(size))
        if start - _stride(size) < last
    ]


def tiled_logits(net: Callable[[Tensor], Tensor], image: Tensor, size: int) -> Tensor:
    """Logits (1, K, H, W) of an image (1, C, H, W), tile by tile.

    Neighbouring tiles are blended over the middle quarter of their overlap. Closer to its edge, a tile is not used, as
    the edge changes the net's outputs there. Pixels whose receptive field contains no edge of a tile have the same
    logits as in the whole image.

    Args:
        net: maps images to logits of the same height and width.
        image: of any size.
        size: of the tiles in pixels.
    """
    height, width = image.shape[2:]
    tiles = tiles_of(height, width, size)
    bottom, right = max(tile.bottom for tile in tiles), max(tile.right for tile in tiles)
    padded = pad(image, (0, right - width, 0, bottom - height), mode="replicate")
    total = weights = torch.zeros(())
    for tile in tiles:
        part = net(padded[:, :, tile.top : tile.bottom, tile.left : tile.right])  # (1, K, h, w)
        if total.ndim == 0:
            total = part.new_zeros(1, part.shape[1], bottom, right)
            weights = part.new_zeros(bottom, right)
        rows = _weights(tile.top, tile.bottom, bottom, overlap_of(size), part)
        columns = _weights(tile.left, tile.right, right, overlap_of(size), part)
        weight = rows[:, None] * columns  # (h, w)
        total[:, :, tile.top : tile.bottom, tile.left : tile.right] += part * weight
        weights[tile.top : tile.bottom, tile.left : tile.right] += weight
    return (total / weights)[:, :, :height, :width]


def _weights(start: int, end: int, length: int, overlap: int, like: Tensor) -> Tensor:
    """Weights of the pixels of a tile along one side, (end - start,); 1 at the image's own edges."""
    place = torch.arange(end - start, device=like.device, dtype=like.dtype) + 0.5
    weight = torch.ones_like(place)
    for from_seam, is_seam in ((place, start > 0), (end - start - place, end < length)):
        if is_seam:
            weight = weight * ((from_seam - overlap * 3 / 8) / (overlap / 4)).clamp(0, 1)
    return weight


def tiled_boxes(net: Callable[[list[Tensor]], list[dict[str, Any]]], image: Tensor, size: int) -> dict[str, Tensor]:
    """Boxes, labels and scores in an image (C, H, W), tile by tile; an object in several tiles gives one box.

    Args:
        net: a detector with torchvision's interface, in evaluation mode.
        image: of any size.
        size: of the tiles in pixels.
    """
    height, width = image.shape[1:]
    tiles = tiles_of(height, width, size)
    bottom, right = max(tile.bottom for tile in tiles), max(tile.right for tile in tiles)
    padded = pad(image[None], (0, right - width, 0, bottom - height), mode="replicate")[0]
    parts = []
    for tile in tiles:
        [part] = net([padded[:, tile.top : tile.bottom, tile.left : tile.right]])
        boxes = part["boxes"] + part["boxes"].new_tensor([tile.left, tile.top] * 2)
        parts.append({"boxes": boxes, "labels": part["labels"], "scores": part["scores"]})
    merged = _merged(parts, tiles, bottom, right)
    limits = merged["boxes"].new_tensor([width, height] * 2)
    merged["boxes"] = merged["boxes"].clamp(min=0).minimum(limits)
    inside = (merged["boxes"][:, 2:] > merged["boxes"][:, :2]).all(dim=1)
    return {name: value[inside] for name, value in merged.items()}


def _merged(parts: list[dict[str, Tensor]], tiles: list[Tile], height: int, width: int) -> dict[str, Tensor]:
    """Merges the boxes of all tiles, one per object."""
    if len(parts) == 1:
        return parts[0]
    boxes, labels, scores = (torch.cat([part[name] for part in parts]) for name in ("boxes", "labels", "scores"))
    owner = torch.cat([torch.full((len(part["boxes"]),), k, device=boxes.device) for k, part in enumerate(parts)])
    is_cut = torch.cat([_is_cut(part["boxes"], tile, height, width) for part, tile in zip(parts, tiles, strict=True)])
    group = list(range(len(boxes)))

    def root(k: int) -> int:
        while group[k] != k:
            group[k] = group[group[k]]
            k = group[k]
        return k

    for first in range(len(tiles)):
        for second in range(first + 1, len(tiles)):
            region = _shared(tiles[first], tiles[second])
            if region is None:
                continue
            a, b = (owner == first).nonzero()[:, 0], (owner == second).nonzero()[:, 0]
            same = _iou_inside(boxes[a], boxes[b], region) > SAME
            same &= labels[a][:, None] == labels[b]
            for i, j in same.nonzero().tolist():
                group[root(int(a[i]))] = root(int(b[j]))
    members: dict[int, list[int]] = {}
    for k in range(len(boxes)):
        members.setdefault(root(k), []).append(k)
    rows = []
    for own in members.values():
        index = torch.tensor(own, device=boxes.device)
        whole = index[~is_cut[index]]
        best = (whole if len(whole) else index)[scores[whole if len(whole) else index].argmax()]
        box = boxes[best] if len(whole) else torch.cat([boxes[index, :2].amin(0), boxes[index, 2:].amax(0)])
        rows.append((box, labels[best], scores[index].max()))
    if not rows:
        return parts[0]
    return {
        name: torch.stack(values)
        for name, values in zip(("boxes", "labels", "scores"), zip(*rows, strict=True), strict=True)
    }


def _is_cut(boxes: Tensor, tile: Tile, height: int, width: int) -> Tensor:
    """Whether each box (N, 4) ends at a seam of its tile, (N,)."""
    left, top, right, bottom = boxes.unbind(dim=1)
    is_cut = torch.zeros(len(boxes), dtype=torch.bool, device=boxes.device)
    for distance, is_seam in (
        (left - tile.left, tile.left > 0),
        (top - tile.top, tile.top > 0),
        (tile.right - right, tile.right < width),
        (tile.bottom - bottom, tile.bottom < height),
    ):
        if is_seam:
            is_cut |= distance <= TOUCH
    return is_cut


def _shared(a: Tile, b: Tile) -> list[int] | None:
    """The region of two tiles as left, top, right and bottom; None if they share none."""
    region = [max(a.left, b.left), max(a.top, b.top), min(a.right, b.right), min(a.bottom, b.bottom)]
    return region if region[0] < region[2] and region[1] < region[3] else None


def _iou_inside(a: Tensor, b: Tensor, region: list[int]) -> Tensor:
    """IoU (N, M) of what two sets of boxes (N, 4), (M, 4) cover of a region; 0 for a box that is outside."""
    low, high = (a.new_tensor(part * 2) for part in (region[:2], region[2:]))
    inside = [boxes.clamp(min=low, max=high) for boxes in (a, b)]
    iou = box_iou(inside[0], inside[1]).nan_to_num(0.0)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(dim=1) for boxes in inside]
    return iou * (areas[0][:, None] > 0) * (areas[1] > 0)
