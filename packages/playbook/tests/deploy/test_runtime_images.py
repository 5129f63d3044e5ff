"""Pictures larger than what may be decoded."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from playbook.deploy.runtime import InputError
from playbook.deploy.runtime.images import ORIENTATION, read_image, reduced_file

PLAN = {"channels": 3, "steps": [{"resize": [8, 8]}, {"divide": 255}]}
LEFT_RED = np.zeros((60, 80, 3), np.uint8)
LEFT_RED[:, :40, 0] = 255


def file_of(kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(LEFT_RED).save(file, kind, **options)
    return file.getvalue()


def turned() -> Image.Exif:
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    return exif


@pytest.mark.parametrize("kind", ["JPEG", "JPEG2000"])
def test_a_large_file_is_decoded_at_a_reduced_scale(kind: str) -> None:
    whole, small = (read_image(file_of(kind), PLAN, max_pixels=most) for most in (None, 1200))
    assert (small.size, small.decoded) == ((60, 80), (30, 40))
    assert (whole.size, whole.decoded) == ((60, 80), None)
    assert np.abs(whole.inputs["image"] - small.inputs["image"]).max() < 0.15


def test_a_large_file_is_turned_upright() -> None:
    sample = read_image(file_of("JPEG", exif=turned()), PLAN, max_pixels=1200)
    assert (sample.size, sample.decoded) == ((80, 60), (40, 30))
    red = sample.inputs["image"][0]
    assert red[:3].min() > 0.9
    assert red[5:].max() < 0.1


@pytest.mark.parametrize(
    ("content", "most"),
    [(file_of("PNG"), 4799), (file_of("JPEG"), 74), (file_of("JPEG", progressive=True), 1199)],
    ids=["a format that cannot", "an eighth is too large", "progressive"],
)
def test_what_cannot_be_reduced_is_refused(content: bytes, most: int) -> None:
    for read in (lambda: read_image(content, PLAN, max_pixels=most), lambda: reduced_file(content, most)):
        with pytest.raises(InputError, match=f"the image: has 80 × 60 pixels, expected at most {most:,}"):
            read()


def test_a_file_with_fewer_pixels() -> None:
    assert reduced_file(file_of("JPEG"), 4800) == file_of("JPEG")
    with Image.open(io.BytesIO(reduced_file(file_of("JPEG", exif=turned()), 1200))) as image:
        assert (image.size, image.getexif().get(ORIENTATION, 1)) == ((30, 40), 1)
    cmyk = io.BytesIO()
    Image.new("CMYK", (80, 60)).save(cmyk, "JPEG")
    with Image.open(io.BytesIO(reduced_file(cmyk.getvalue(), 1200))) as image:
        assert (image.size, image.mode) == ((40, 30), "RGB")


def test_an_open_image_stays_as_it_is() -> None:
    with Image.open(io.BytesIO(file_of("JPEG", exif=turned()))) as image:
        sample = read_image(image, PLAN)
        assert (sample.size, image.size) == ((80, 60), (80, 60))
