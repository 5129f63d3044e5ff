"""Batched changes against torchvision's of one image at a time."""

import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional

from playbook.data.augment import cutout, flip, resized_crop, translate

SHAPES = pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 24)])


def images(shape: tuple[int, int, int], count: int = 16) -> Tensor:
    return torch.randint(0, 256, (count, *shape), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@SHAPES
def test_flip(shape: tuple[int, int, int]) -> None:
    image = images(shape)
    chosen = torch.arange(16) % 3 == 0
    expected = [functional.horizontal_flip(one) if yes else one for one, yes in zip(image, chosen, strict=True)]
    assert torch.equal(flip(image, chosen), torch.stack(expected))


@SHAPES
def test_translate(shape: tuple[int, int, int]) -> None:
    image, most = images(shape, count=81), 4
    shifts = torch.cartesian_prod(torch.arange(-most, most + 1), torch.arange(-most, most + 1))
    found = translate(image, *shifts.unbind(1))
    for one, moved, (down, right) in zip(image, found, shifts.tolist(), strict=True):
        padded = functional.pad(one, [most] * 4, padding_mode="reflect")
        assert torch.equal(moved, functional.crop(padded, most - down, most - right, *shape[1:])), (down, right)


@SHAPES
def test_cutout(shape: tuple[int, int, int]) -> None:
    image, size = images(shape).float() + 1, 5
    height, width = shape[1:]
    generator = torch.Generator().manual_seed(1)
    row, column = (torch.randint(0, side, (16,), generator=generator) for side in (height, width))
    row[0], column[0], row[1], column[1] = 0, 0, height - 1, width - 1  # corners
    found = cutout(image, row, column, size)
    for one, cut, y, x in zip(image, found, row.tolist(), column.tolist(), strict=True):
        top, left = max(y - size // 2, 0), max(x - size // 2, 0)
        high, wide = min(y - size // 2 + size, height) - top, min(x - size // 2 + size, width) - left
        assert torch.equal(cut, functional.erase(one, top, left, high, wide, torch.zeros(1)))


@SHAPES
def test_resized_crop(shape: tuple[int, int, int]) -> None:
    image = images(shape).double()
    generator = torch.Generator().manual_seed(2)
    height, width = shape[1:]
    high = torch.randint(4, height + 1, (16,), generator=generator)
    wide = torch.randint(4, width + 1, (16,), generator=generator)
    top = (torch.rand(16, generator=generator) * (height - high + 1)).long()
    left = (torch.rand(16, generator=generator) * (width - wide + 1)).long()
    found = resized_crop(image, *(part.double() for part in (top, left, high, wide)))
    for one, crop, *box in zip(image, found, top.tolist(), left.tolist(), high.tolist(), wide.tolist(), strict=True):
        expected = functional.resized_crop(one, *box, size=[height, width], antialias=False)
        torch.testing.assert_close(crop, expected, rtol=0, atol=1e-9)


def test_whole_image_as_a_crop_is_the_image() -> None:
    image = images((3, 9, 7)).double()
    zeros, ones = torch.zeros(16).double(), torch.ones(16).double()
    torch.testing.assert_close(resized_crop(image, zeros, zeros, 9 * ones, 7 * ones), image, rtol=0, atol=1e-9)
