"""Pictures: upright, on white, of 8 bits, and as the runtime of exports reads them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from playbook import UserError
from playbook.deploy.runtime.images import read_image
from src.data.multimodal.pictures import PictureReader, covered, read_picture, read_upright
from tests.multimodal.made_up import encoded, picture


@pytest.mark.parametrize("size", [(30, 24), (16, 16), (9, 200), (300, 12), (7, 5)])
@pytest.mark.parametrize("channels", [1, 3])
def test_evaluation_equals_the_runtime(size: tuple[int, int], channels: int) -> None:
    reader = PictureReader(16, channels, 0.9)
    content = encoded(picture("green", "square", 0).resize(size))
    theirs = read_image(content, reader.plan())
    torch.testing.assert_close(reader.evaluated(reader(content)), torch.from_numpy(theirs.inputs["image"]))


def test_a_transparent_picture_is_laid_on_white() -> None:
    image = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    assert read_picture(encoded(image)).unique().tolist() == [255]


def test_a_picture_of_16_bits_keeps_its_upper_8() -> None:
    values = np.full((4, 4), 0x7F34, dtype=np.uint16)
    assert np.asarray(read_upright(encoded(Image.fromarray(values)), 1)).max() == 0x7F


def test_values_without_a_range_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 0.5, dtype=np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(UserError, match=r"expected 8 or 16 bits a channel, got values from 0\.5 to 0\.5"):
        read_upright(tmp_path / "a.tif", 3)


def test_exif_turns_a_picture(tmp_path: Path) -> None:
    image = picture("red", "disc", 0)
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "a.png", exif=exif)
    assert read_upright(tmp_path / "a.png", 3).size == (24, 30)


def test_no_picture_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(OSError, match="cannot identify") as raised:
        read_upright(tmp_path / "a.png", 3)
    assert raised.value.filename == (tmp_path / "a.png").as_posix()
    with pytest.raises(OSError, match="cannot identify") as raised:
        PictureReader(8, 3, 1.0)(b"no picture", "a.tar/1.png")
    assert raised.value.filename == "a.tar/1.png"


def test_the_middle_of_a_long_picture_is_scaled() -> None:
    image = Image.new("L", (4000, 2))
    image.paste(255, (1992, 0, 2008, 2))
    assert np.asarray(covered(image, 4)).min() > 100
