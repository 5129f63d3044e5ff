"""Boxes against plain loops in float64."""

import torch
from torch.autograd import gradcheck
from torchvision.ops import box_iou

from src.ops.boxes import (
    are_covered,
    are_inside,
    boxes_to_distances,
    distances_to_boxes,
    grid_points,
    match_boxes,
    stack_targets,
)


def test_points_are_the_centres_of_the_cells_row_by_row() -> None:
    found = grid_points(2, 3, 4, torch.zeros(1, dtype=torch.float64))
    assert found.tolist() == [[x, y] for y in (2, 6) for x in (2, 6, 10)]
    assert found.dtype == torch.float64


def test_distances_are_to_left_top_right_and_bottom() -> None:
    point, box = torch.tensor([10.0, 20.0]), torch.tensor([7.0, 18.0, 14.0, 19.0])
    assert boxes_to_distances(point, box).tolist() == [3, 2, 4, -1]  # the point lies below the box


def test_boxes_and_distances_are_inverse_to_each_other_over_any_dimensions() -> None:
    torch.manual_seed(0)
    points, boxes = 100 * torch.rand(5, 2, dtype=torch.float64), 100 * torch.rand(3, 1, 4, dtype=torch.float64)
    distances = boxes_to_distances(points, boxes)
    assert distances.shape == (3, 5, 4)
    torch.testing.assert_close(distances_to_boxes(points, distances), boxes.expand(3, 5, 4))


def test_points_inside_are_those_whose_surroundings_meet_the_box() -> None:
    """Against torchvision: a tiny box around the point meets the box."""
    torch.manual_seed(0)
    corners = 100 * torch.rand(20, 2, 2, dtype=torch.float64)
    boxes, points = torch.cat([corners.amin(1), corners.amax(1)], 1), 100 * torch.rand(50, 2, dtype=torch.float64)
    meets = box_iou(boxes, torch.cat([points - 1e-6, points + 1e-6], 1)) > 0
    assert 100 < meets.sum() < 900
    assert torch.equal(are_inside(points, boxes, torch.zeros(50, 1)), meets)


def test_a_small_box_counts_as_large_as_asked_for_on_both_sides() -> None:
    points, least = torch.tensor([[4.0, 4], [12, 4], [12, 12]]), torch.tensor([[8.0], [8], [2]])
    boxes = torch.tensor([[7.0, 5, 9, 7], [0, 0, 20, 20]])  # the centre of the first one is 4 and 2 from two points
    assert are_inside(points, boxes, least).tolist() == [[True, True, False], [True, True, True]]


def test_gradients() -> None:
    torch.manual_seed(0)
    points, sides = (torch.rand(3, count, dtype=torch.float64, requires_grad=True) for count in (2, 4))
    assert gradcheck(distances_to_boxes, (points, sides))
    assert gradcheck(boxes_to_distances, (points, sides))


def test_targets_are_padded_to_the_most_objects() -> None:
    first = {"boxes": torch.tensor([[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]), "labels": torch.tensor([3, 1])}
    none = {"boxes": torch.empty(0, 4), "labels": torch.empty(0, dtype=torch.long)}
    boxes, labels, is_object = stack_targets([none, first], like=torch.empty((), dtype=torch.float64))
    assert boxes.dtype == torch.float64
    torch.testing.assert_close(boxes[1], first["boxes"].double())
    assert labels[1].tolist() == [3, 1]
    assert is_object.tolist() == [[False, False], [True, True]]
    assert stack_targets([none], like=boxes)[0].shape == (1, 1, 4), "a row even without any object"


def test_boxes_hit_the_free_object_with_the_largest_iou() -> None:
    """Against plain loops over pairs."""
    generator = torch.Generator().manual_seed(0)
    num_hits = 0
    for num_boxes, num_objects in [(12, 8), (8, 12), (0, 3), (3, 0)]:
        corners = 20 * torch.rand(num_boxes + num_objects, 2, generator=generator)
        both = torch.cat([corners, corners + 15 + 5 * torch.rand(corners.shape, generator=generator)], dim=1)
        labels = torch.randint(2, (len(both),), generator=generator)
        boxes, objects, of_boxes, classes = *both.tensor_split([num_boxes]), *labels.tensor_split([num_boxes])
        free, expected = set(range(num_objects)), []
        for box, label in zip(boxes, of_boxes, strict=True):
            pairs = [(box_iou(box[None], objects[n : n + 1]).item(), n) for n in free if classes[n] == label]
            iou, best = max(pairs, default=(0.0, -1))
            expected.append(best if iou >= 0.5 else -1)
            free -= {expected[-1]}
        assert match_boxes(boxes, of_boxes, objects, classes).tolist() == expected
        num_hits += sum(hit >= 0 for hit in expected)
    assert num_hits >= 5


def test_a_region_covers_by_the_share_of_the_box() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [5, 0, 15, 10], [6, 0, 16, 10], [0, 0, 10, 10]])
    labels, region = torch.tensor([0, 0, 0, 1]), torch.tensor([[-50.0, -50, 10, 50]])
    assert are_covered(boxes, labels, region, torch.tensor([0])).tolist() == [True, True, False, False]
    assert are_covered(boxes, labels, torch.zeros(0, 4), torch.zeros(0)).tolist() == [False] * 4
