"""Pixels of images, whatever the number of their bits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from src.data.images import read_image, with_mode


@pytest.mark.parametrize("suffix", ["png", "tiff"])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_of_16_bits_the_upper_8_are_kept(tmp_path: Path, suffix: str, mode: str) -> None:
    values = np.linspace(0, 2**16 - 1, 12).astype(np.uint16).reshape(3, 4)
    Image.fromarray(values).save(tmp_path / f"a.{suffix}")
    found = np.asarray(with_mode(read_image(tmp_path / f"a.{suffix}"), mode))
    assert np.array_equal(found if mode == "L" else found[..., 1], values >> 8)


@pytest.mark.parametrize("values", [np.full((2, 2), 0.5, np.float32), np.full((2, 2), 2**16, np.int32)])
def test_values_that_have_no_place_in_8_bits(values: Any) -> None:
    with pytest.raises(ValueError, match="expected 8 or 16 bits a channel, got values from"):
        with_mode(Image.fromarray(values), "RGB")


def test_8_bits_are_what_pillow_makes_of_them() -> None:
    picture = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8))
    for mode in ("1", "L", "P", "RGB", "RGBA", "CMYK"):
        image = picture.convert("RGB").convert(mode)
        assert np.array_equal(np.asarray(with_mode(image, "RGB")), np.asarray(image.convert("RGB")))
