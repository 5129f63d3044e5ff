"""An exported model reads files as `read` does: the same pixels, and the same tokens."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from playbook import Data
from playbook.deploy.runtime import InputError
from playbook.deploy.runtime.images import read_image
from src.data.mixture import Mixture
from src.data.vision.detection import COCODetection, VOCDetection
from src.data.vision.digits import Digits
from src.data.vision.image_archive import ImageArchive
from src.data.vision.image_folder import ImageFolder
from src.data.vision.masks import MaskFolder
from src.data.vision.pets import OxfordPets
from src.data.vision.published import CIFAR10, CIFAR100, KMNIST, MNIST, FashionMNIST
from src.data.vision.scenes import DigitScenes
from src.data.vision.yolo_detection import YOLODetection

STATISTICS = {1: {"mean": [33.3], "deviation": [78.6]}, 3: {"mean": [125.3, 123, 113.9], "deviation": [63, 62.1, 66.7]}}


def resident(make: Callable[..., Any], channels: int, side: int) -> Data:
    data = make()
    data.facts = {"image_shape": [channels, side, side if side > 1 else 28], **STATISTICS[channels]}
    return data


DATA: dict[str, Callable[[], Data]] = {
    "MNIST": lambda: resident(MNIST, 1, 28),
    "FashionMNIST": lambda: resident(FashionMNIST, 1, 28),
    "KMNIST": lambda: resident(KMNIST, 1, 28),
    "CIFAR10": lambda: resident(CIFAR10, 3, 32),
    "CIFAR100": lambda: resident(CIFAR100, 3, 32),
    "ImageArchive of lines": lambda: resident(lambda: ImageArchive("images.tar"), 3, 1),
    "ImageArchive": lambda: resident(lambda: ImageArchive("images.tar"), 3, 20),
    "Digits": Digits,
    "DigitScenes masks": lambda: DigitScenes(target="masks", image_size=[64, 96]),
    "DigitScenes boxes": lambda: DigitScenes(target="boxes", image_size=[64, 96]),
    "ImageFolder": lambda: ImageFolder("images", image_size=48),
    "ImageFolder grey": lambda: ImageFolder("images", image_size=33, channels=1, mean=[0.2], deviation=[0.3]),
    "MaskFolder": lambda: MaskFolder("images", image_size=[40, 56]),
    "MaskFolder grey": lambda: MaskFolder("images", image_size=[40, 56], channels=1),
    "OxfordPets": lambda: OxfordPets("images"),
    "VOCDetection": lambda: VOCDetection("images"),
    "COCODetection": lambda: COCODetection("images", image_size=[64, 80]),
    "YOLODetection grey": lambda: YOLODetection("images", image_size=[64, 80], channels=1),
    "Mixture": lambda: Mixture({"one": ImageFolder("images", image_size=48), "two": ImageFolder("images")}),
}


def photograph(width: int, height: int, seed: int = 0) -> Image.Image:
    """Smooth colours with some noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / rng.uniform(3, 30) + y / rng.uniform(3, 30)) for _ in range(3)]
    pixels = 127 + 90 * np.stack(waves, axis=-1) + rng.normal(0, 12, (height, width, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def content(image: Image.Image, form: str = "png", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def deep(values: np.ndarray, form: str = "png") -> bytes:
    return content(Image.fromarray(values), form)


def deep_colours(channels: int) -> bytes:
    """A PNG with 16 bits in each of several channels, which Pillow reads but does not write."""
    import imagecodecs

    values = np.random.default_rng(0).integers(0, 2**16, (30, 50, channels), dtype=np.uint16)
    return bytes(imagecodecs.png_encode(values))


def rotated() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    return content(photograph(70, 40), "jpeg", exif=exif, quality=95)


def palette() -> bytes:
    return content(photograph(60, 44).quantize(16))


RNG = np.random.default_rng(1)
FILES: dict[str, Callable[[], bytes]] = {
    "wide": lambda: content(photograph(150, 90)),
    "tall": lambda: content(photograph(57, 190)),
    "small": lambda: content(photograph(5, 7)),
    "one pixel": lambda: content(photograph(1, 1)),
    "very long": lambda: content(photograph(900, 11)),
    "a line": lambda: content(Image.new("L", (200_000, 1), 77)),
    "as large as the line": lambda: content(photograph(28, 1)),
    "as large as the net": lambda: content(photograph(28, 28)),
    "of 8 pixels": lambda: content(photograph(8, 8).convert("L")),
    "grey": lambda: content(photograph(80, 61).convert("L")),
    "JPEG": lambda: content(photograph(97, 64), "jpeg", quality=80),
    "turned by EXIF": rotated,
    "palette": palette,
    "transparent": lambda: content(photograph(66, 50).convert("RGBA")),
    "grey and transparent": lambda: content(photograph(66, 50).convert("LA")),
    "CMYK": lambda: content(photograph(66, 50).convert("CMYK"), "jpeg"),
    "black and white": lambda: content(photograph(66, 50).convert("1")),
    "WebP": lambda: content(photograph(66, 50), "webp"),
    "grey of 16 bits": lambda: deep(RNG.integers(0, 2**16, (45, 70), dtype=np.uint16)),
    "grey of 32 bits": lambda: deep(RNG.integers(0, 2**8, (45, 70)).astype(np.int32), "tiff"),
    "RGB of 16 bits": lambda: deep_colours(3),
    "RGBA of 16 bits": lambda: deep_colours(4),
    "grey and transparent of 16 bits": lambda: deep_colours(2),
    "TIFF": lambda: content(photograph(66, 50), "tiff"),
}


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("file", FILES)
def test_pixels_equal_those_of_read(name: str, file: str) -> None:
    """Bit by bit for bytes; floats are interpolated in another order, and agree to rounding."""
    data, source = DATA[name](), FILES[file]()
    expected: Tensor = data.read(source)
    plan = data.preprocessing()
    assert plan is not None
    sample = read_image(source, plan)
    image = sample.inputs["image"]
    assert image.dtype == np.float32
    assert image.shape == tuple(expected.shape)
    difference = np.abs(image - expected.numpy()).max()
    of_bytes = "bits" not in file and "DigitScenes" not in name
    is_exact = of_bytes or (data.preprocessing()["bits"] == 8 and "DigitScenes" not in name)  # type: ignore[index]
    assert difference <= (0 if is_exact else 1e-5), difference
    if name.split(maxsplit=1)[0] in ("MaskFolder", "OxfordPets", "DigitScenes", "VOCDetection", "COCODetection"):
        size: Any = data.unlabelled(source)[1]["file_size"]
        height_first = name in ("MaskFolder", "MaskFolder grey", "OxfordPets", "DigitScenes masks")
        own = tuple(size.tolist()) if isinstance(size, Tensor) else tuple(size)
        assert sample.size == (own if height_first else own[::-1])


@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"no image",
        FILES["wide"]()[:2000],
        FILES["JPEG"]()[:700],
        content(Image.fromarray(np.ones((3, 4), np.float32)), "tiff"),
        content(Image.fromarray(np.full((3, 4), -1, np.int32)), "tiff"),
    ],
    ids=["nothing", "text", "truncated PNG", "truncated JPEG", "floats", "negative"],
)
@pytest.mark.parametrize("name", ["MNIST", "ImageFolder", "MaskFolder"])
def test_what_read_refuses_is_refused(name: str, source: bytes) -> None:
    data = DATA[name]()
    with pytest.raises((OSError, ValueError)):
        data.read(source)
    plan = data.preprocessing()
    assert plan is not None
    with pytest.raises(InputError, match="the image: "):
        read_image(source, plan)


def test_a_tiff_that_pillow_cuts_is_refused() -> None:
    import tifffile

    file = io.BytesIO()
    tifffile.imwrite(file, np.zeros((4, 5, 3), np.uint16), photometric="rgb")
    plan = ImageFolder("images").preprocessing()
    assert plan is not None
    with pytest.raises(InputError, match=r"the image: .*(TIFF|cannot be read)"):
        read_image(file.getvalue(), plan)


def test_files_that_pillow_cannot_read_whole_are_not_described() -> None:
    for make in (ImageFolder, MaskFolder, VOCDetection):
        mean: dict[str, Any] = {} if make is VOCDetection else {"mean": [0.5] * 5, "deviation": [1.0] * 5}
        assert make("images", channels=5, **mean).preprocessing() is None
        assert make("images", value_range=[0, 1]).preprocessing() is None
    assert DigitScenes(target="captions").preprocessing() is None


def test_plans_are_json(tmp_path: Path) -> None:
    import json

    for make in DATA.values():
        plan = make().preprocessing()
        assert json.loads(json.dumps(plan)) == plan


def test_a_padded_image_keeps_the_size_of_its_file() -> None:
    plan = {**(VOCDetection("images").preprocessing() or {}), "pads_to": 32}
    sample = read_image(FILES["wide"](), plan)
    assert sample.inputs["image"].shape == (3, 96, 160)
    assert sample.size == (90, 150)
    torch.testing.assert_close(
        torch.from_numpy(sample.inputs["image"][:, :90, :150]), VOCDetection("images").read(FILES["wide"]())
    )
    assert not sample.inputs["image"][:, 90:].any()
