"""Tiles give what the whole image gives, away from the reach of their edges."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from src.ops.tiles import overlap_of, tiled_boxes, tiled_logits, tiles_of


@pytest.mark.parametrize("sides", [(40, 50), (128, 128), (129, 400), (1000, 333)])
@pytest.mark.parametrize("size", [64, 100, 128, 512])
def test_tiles_cover_the_image_and_overlap(sides: tuple[int, int], size: int) -> None:
    height, width = sides
    counts = torch.zeros(height + 64, width + 64)
    tiles = tiles_of(height, width, size)
    for tile in tiles:
        assert tile.top % 32 == tile.left % 32 == 0
        counts[tile.top : tile.bottom, tile.left : tile.right] += 1
    assert counts[:height, :width].min() >= 1
    assert max(tile.bottom for tile in tiles) < height + 32
    starts = sorted({tile.top for tile in tiles})
    assert all(later - start <= size - overlap_of(size) for start, later in pairwise(starts))
    assert overlap_of(size) >= size // 4


def test_a_net_of_short_reach_sees_no_seam() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 4, 5, padding=2)).eval()
    image = torch.randn(1, 3, 300, 421)
    with torch.no_grad():
        whole, tiled = net(image), tiled_logits(net, image, 128)
    reach = 4 + 31  # and what the padding to whole tiles adds below and at the right
    torch.testing.assert_close(tiled[..., :-reach, :-reach], whole[..., :-reach, :-reach])


def test_an_image_of_one_tile_is_the_whole() -> None:
    net = nn.Conv2d(3, 2, 3, padding=1)
    image = torch.randn(1, 3, 64, 96)
    assert torch.equal(tiled_logits(net, image, 128), net(image))


def squares(images: list[Tensor]) -> list[dict[str, Any]]:
    """Finds rectangles of ones, each with a value of its own, as far as a tile shows them."""
    found = []
    for image in images:
        boxes, labels = [], []
        for value in image.unique().tolist():
            rows, columns = (image[0] == value).nonzero(as_tuple=True)
            if value > 0:
                boxes.append([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
                labels.append(int(value) % 2)
        scores = torch.linspace(0.9, 0.5, len(boxes))
        box = torch.tensor(boxes, dtype=torch.float32).view(-1, 4)
        found.append({"boxes": box, "labels": torch.tensor(labels, dtype=torch.int64), "scores": scores})
    return found


def test_objects_on_seams_are_found_once_and_whole() -> None:
    image = torch.zeros(3, 500, 700)
    boxes = torch.tensor(
        [[5, 5, 30, 40], [90, 100, 110, 130], [80, 200, 420, 260], [440, 20, 480, 480], [650, 450, 700, 500]]
    )
    for value, (left, top, right, bottom) in enumerate(boxes.tolist(), start=1):
        area = image[:, top:bottom, left:right]
        area[area == 0] = value
    expected = squares([image])[0]
    for size in (128, 256, 1024):
        found = tiled_boxes(squares, image, size)
        assert sorted(found["boxes"].tolist()) == sorted(expected["boxes"].tolist()), size


def test_an_empty_image_has_no_boxes() -> None:
    assert tiled_boxes(squares, torch.zeros(3, 300, 300), 128)["boxes"].shape == (0, 4)
