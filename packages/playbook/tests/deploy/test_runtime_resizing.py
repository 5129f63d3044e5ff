"""Resizing in NumPy equals torch's bit by bit for bytes, and to rounding for floats."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms.v2.functional import resize as resize_tensor

from playbook.deploy.runtime.resizing import resize

SIDE = st.integers(1, 120)
WIDTH = st.integers(2, 120)  # torch 2.15 fills a column of one pixel with its first value, or fails
IS_NATIVE = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")  # elsewhere torchvision rounds floats


@settings(max_examples=60, deadline=None)
@given(SIDE, SIDE, SIDE, WIDTH, st.sampled_from([1, 3]), st.integers(0, 2**32 - 1))
def test_bytes_equal_those_of_torch(h: int, w: int, height: int, width: int, channels: int, seed: int) -> None:
    image = np.random.default_rng(seed).integers(0, 256, (channels, h, w), dtype=np.uint8)
    expected = resize_tensor(torch.from_numpy(image), [height, width], antialias=True).numpy()
    difference = np.abs(resize(image, (height, width)).astype(int) - expected)
    assert difference.max() <= (0 if IS_NATIVE else 1), difference.max()


@settings(max_examples=40, deadline=None)
@given(SIDE, SIDE, SIDE, WIDTH, st.integers(0, 2**32 - 1))
def test_floats_equal_those_of_torch_up_to_rounding(h: int, w: int, height: int, width: int, seed: int) -> None:
    image = np.random.default_rng(seed).random((1, h, w), dtype=np.float32)
    expected = resize_tensor(torch.from_numpy(image), [height, width], antialias=True)
    torch.testing.assert_close(torch.from_numpy(resize(image, (height, width))), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("size", [(7, 5), (40, 90)])
def test_pillow_differs_by_at_most_one_level(size: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, (31, 47), dtype=np.uint8)
    height, width = size
    expected = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
    assert np.abs(resize(image[None], size)[0].astype(int) - expected).max() <= 1


def test_a_constant_image_stays_constant() -> None:
    for value in (0, 1, 127, 254, 255):
        assert (resize(np.full((1, 33, 51), value, np.uint8), (9, 70)) == value).all(), value
