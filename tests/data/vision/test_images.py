"""Pixels of images, whatever the number of their bits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from torchvision.datasets.folder import IMG_EXTENSIONS

from src.data.vision.images import FORMATS, image_files, read_image, with_mode


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_is_read(tmp_path: Path, suffix: str) -> None:
    pixels = np.kron([[0, 255], [255, 0]], np.ones((8, 8))).astype(np.uint8)
    Image.fromarray(pixels).convert("1" if suffix == ".pbm" else "RGB").save(tmp_path / f"a{suffix}")
    (file,) = image_files(tmp_path)
    found = np.asarray(with_mode(read_image(file), "L"))
    assert np.array_equal(found > 127, pixels > 127), found


def test_formats_of_torchvision_are_among_them() -> None:
    assert set(FORMATS) >= set(IMG_EXTENSIONS)


def test_linked_folders_are_entered_once(tmp_path: Path) -> None:
    for name in ("own/a.png", "elsewhere/b.JPG", "elsewhere/.hidden/c.png", "elsewhere/.d.png", "elsewhere/e.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "own/linked").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "elsewhere/back").symlink_to(tmp_path / "own", target_is_directory=True)
    assert image_files(tmp_path / "own") == [tmp_path / "own/a.png", tmp_path / "own/linked/b.JPG"]


@pytest.mark.parametrize("suffix", ["png", "tiff"])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_of_16_bits_the_upper_8_are_kept(tmp_path: Path, suffix: str, mode: str) -> None:
    values = np.linspace(0, 2**16 - 1, 12).astype(np.uint16).reshape(3, 4)
    Image.fromarray(values).save(tmp_path / f"a.{suffix}")
    found = np.asarray(with_mode(read_image(tmp_path / f"a.{suffix}"), mode))
    assert np.array_equal(found if mode == "L" else found[..., 1], values >> 8)


def test_a_text_too_long_for_pillow_names_the_file(tmp_path: Path) -> None:
    text = PngInfo()
    text.add_text("comment", "a" * 2**21, zip=True)
    Image.new("L", (4, 4)).save(tmp_path / "a.png", pnginfo=text)
    with pytest.raises(OSError, match="too large") as caught:
        read_image(tmp_path / "a.png")
    assert caught.value.filename == str(tmp_path / "a.png")


def test_of_32_bits_values_up_to_255_are_kept(tmp_path: Path) -> None:
    values = np.arange(256, dtype=np.int32).reshape(16, 16)
    Image.fromarray(values).save(tmp_path / "a.tif")
    assert np.array_equal(np.asarray(with_mode(read_image(tmp_path / "a.tif"), "L")), values)
    Image.fromarray(values * 256).save(tmp_path / "a.tif")
    assert np.array_equal(np.asarray(with_mode(read_image(tmp_path / "a.tif"), "L")), values)


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_16_bits_stay_dark(tmp_path: Path, suffix: str) -> None:
    Image.fromarray(np.full((4, 4), 255, np.uint16)).save(tmp_path / f"a.{suffix}")
    assert not np.asarray(with_mode(read_image(tmp_path / f"a.{suffix}"), "L")).any()


@pytest.mark.parametrize("values", [np.full((2, 2), 0.5, np.float32), np.full((2, 2), 2**16, np.int32)])
def test_values_that_have_no_place_in_8_bits(values: Any) -> None:
    with pytest.raises(ValueError, match="expected 8 or 16 bits a channel, got values from"):
        with_mode(Image.fromarray(values), "RGB")


def test_8_bits_are_what_pillow_makes_of_them() -> None:
    picture = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8))
    for mode in ("1", "L", "P", "RGB", "RGBA", "CMYK"):
        image = picture.convert("RGB").convert(mode)
        assert np.array_equal(np.asarray(with_mode(image, "RGB")), np.asarray(image.convert("RGB")))
