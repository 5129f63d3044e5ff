"""Pictures of answers: their sizes, and that colours stand at the right pixels."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from playbook import class_colour
from src.ops.pictures import as_image, captioned, enlarged, enlargement, with_boxes, with_mask


def grey(width: int, height: int, value: int = 128) -> Image.Image:
    return Image.new("RGB", (width, height), (value, value, value))


def test_bytes_stay_as_they_are() -> None:
    pixels = torch.randint(0, 256, (3, 5, 7), dtype=torch.uint8)
    image = as_image(pixels)
    assert image.size == (7, 5)
    assert np.array_equal(np.asarray(image), pixels.permute(1, 2, 0).numpy())


@pytest.mark.parametrize("channels", [1, 2])
def test_one_channel_is_grey(channels: int) -> None:
    pixels = torch.randint(0, 256, (channels, 5, 7), dtype=torch.uint8)
    assert np.array_equal(np.asarray(as_image(pixels)), pixels[0, :, :, None].expand(-1, -1, 3).numpy())


def test_floats_are_stretched_from_darkest_to_brightest() -> None:
    pixels = torch.tensor([[[-2.0, 0.0, 2.0]]]).expand(4, 1, 3)
    assert np.asarray(as_image(pixels))[0].tolist() == [[0] * 3, [128] * 3, [255] * 3]
    assert np.asarray(as_image(torch.full((3, 2, 2), 7.0))).max() == 0  # constant


@pytest.mark.parametrize(("inputs", "kind"), [(torch.zeros(64), r"\(64,\)"), ({"tokens": torch.zeros(3)}, "dict")])
def test_what_is_no_image_is_told(inputs: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=rf"expected an image \(C, H, W\), got {kind}"):
        as_image(inputs)


def test_a_box_without_a_score_has_its_class_alone() -> None:
    box = {"class": "cat", "left": 10, "top": 60, "right": 200, "bottom": 200}
    numbers = {"cat": 0}
    target = with_boxes(grey(300, 300), [box], numbers)
    assert target.tobytes() != with_boxes(grey(300, 300), [{**box, "score": 1.0}], numbers).tobytes()
    assert target.getpixel((10, 150)) == class_colour(1)


def test_small_pictures_are_enlarged_pixel_by_pixel() -> None:
    image = as_image(torch.randint(0, 256, (3, 8, 4), dtype=torch.uint8))
    assert enlargement(image) == 32
    large = enlarged(image)
    assert large.size == (128, 256)
    assert np.array_equal(np.asarray(large)[16::32, 16::32], np.asarray(image))
    assert enlarged(grey(300, 10)).size == (300, 10)


def test_a_caption_stands_above_the_picture() -> None:
    image = grey(200, 100, value=77)
    picture = captioned(image, "cat 0.93")
    height = picture.height - 100
    assert picture.width == 200
    assert height > 10
    pixels = np.asarray(picture)
    assert np.array_equal(pixels[height:], np.asarray(image))
    assert pixels[:height].min() < 64, "no ink"
    assert (pixels[:height, [0, -1]] == 255).all()
    assert (pixels[[0, height - 1]] == 255).all(), "the text touches the edge"


def test_a_long_caption_widens_the_picture() -> None:
    picture = captioned(grey(40, 40), "a long name of a class 0.93")
    assert picture.width > 40
    assert (np.asarray(picture)[:, -1][: picture.height - 40] == 255).all()


def test_boxes_have_the_colour_of_their_class() -> None:
    boxes = [
        {"class": "dog", "score": 0.9, "left": 100.0, "top": 150.0, "right": 300.0, "bottom": 250.0},
        {"class": "cat", "score": 0.5, "left": 20.0, "top": 60.0, "right": 60.0, "bottom": 120.0},
    ]
    picture = with_boxes(grey(400, 300), boxes, {"cat": 0, "dog": 1})
    assert picture.size == (400, 300)
    for box, number in zip(boxes, (1, 0), strict=True):
        left, top, right, bottom = (int(box[side]) for side in ("left", "top", "right", "bottom"))
        middle = (left + right) // 2, (top + bottom) // 2
        on_edges = [(left, middle[1]), (right, middle[1]), (middle[0], bottom)]
        assert {picture.getpixel(place) for place in on_edges} == {class_colour(1 + number)}
        assert picture.getpixel(middle) == (128, 128, 128)
        assert picture.getpixel((left + 3, top - 3)) != (128, 128, 128), "no label above the box"


def test_boxes_are_drawn_on_an_enlarged_picture_in_its_scale() -> None:
    box = {"class": "cat", "score": 0.5, "left": 8.0, "top": 16.0, "right": 24.0, "bottom": 28.0}
    picture = with_boxes(grey(32, 32), [box], {"cat": 0})
    assert picture.size == (256, 256)
    assert picture.getpixel((8 * 8, 22 * 8)) == picture.getpixel((16 * 8, 28 * 8)) == class_colour(1)
    assert picture.getpixel((16 * 8, 22 * 8)) == (128, 128, 128)


def test_the_surest_box_lies_on_top() -> None:
    place = {"left": 10.0, "top": 100.0, "right": 200.0, "bottom": 200.0}
    boxes = [{"class": "cat", "score": 0.9, **place}, {"class": "dog", "score": 0.3, **place}]
    assert with_boxes(grey(300, 300), boxes, {"cat": 0, "dog": 1}).getpixel((10, 150)) == class_colour(1)


def test_a_mask_tints_the_image() -> None:
    mask = torch.zeros(300, 400, dtype=torch.uint8)
    mask[100:, 200:] = 2
    picture = with_mask(grey(400, 300, value=100), mask, ["ground", "cat", "dog"])
    assert picture.size == (400, 300)
    red, green, blue = class_colour(2)
    assert picture.getpixel((300, 200)) == tuple(round((100 + value) / 2) for value in (red, green, blue))
    assert picture.getpixel((100, 250)) == (75, 75, 75)  # black at a quarter
    pixels = np.asarray(picture)[:90, :190]
    assert (pixels == (red, green, blue)).all(2).any(), "no legend of the class that occurs"
    assert not (pixels == class_colour(1)).all(2).any(), "a legend of a class that does not"


def test_a_mask_of_another_size_is_the_size_of_the_picture() -> None:
    assert with_mask(grey(50, 40), torch.ones(300, 280, dtype=torch.int64), []).size == (280, 300)
