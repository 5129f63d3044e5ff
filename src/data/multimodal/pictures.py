"""Pictures of pairs: finding their files, and reading them upright, square and normalised."""

import io
from collections.abc import Sequence
from errno import EIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from playbook import UserError, files_below

FORMATS = (".avif", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
MODES = {1: "L", 3: "RGB"}  # of Pillow, by channels
BACKGROUND = "white"  # of transparent pixels
LONGEST = 8  # ratio of the sides up to which a picture is scaled as a whole; beyond it, that could take gigabytes
# of OpenAI's CLIP for RGB
MEANS = {1: [0.5], 3: [0.48145466, 0.4578275, 0.40821073]}
DEVIATIONS = {1: [0.25], 3: [0.26862954, 0.26130258, 0.27577711]}


def picture_files(folder: Path) -> list[Path]:
    """Lists the pictures in a folder and its subfolders, sorted, without hidden ones."""
    return files_below(folder, FORMATS)


def read_picture(source: Path | str | bytes) -> Tensor:
    """Reads a picture to draw on, as bytes (3, H, W)."""
    return functional.pil_to_tensor(read_upright(source, 3))


class PictureReader:
    """Reads pictures as evaluation and training see them.

    Args:
        image_size: height and width in pixels, S.
        channels: 1 for grey, 3 for RGB.
        crop: smallest share of the area that a training crop covers, in (0, 1]; 1 crops as evaluation does.
        mean: of each channel, to subtract from values in [0, 1]. Defaults to that of OpenAI's CLIP, or 0.5 for grey.
        deviation: of each channel, to divide by. Defaults to that of OpenAI's CLIP, or 0.25 for grey.

    Raises:
        ValueError: a value is out of range.
    """

    def __init__(
        self,
        image_size: int,
        channels: int,
        crop: float,
        mean: Sequence[float] | None = None,
        deviation: Sequence[float] | None = None,
    ) -> None:
        if image_size < 1:
            raise ValueError(f"image_size: expected at least 1 pixel, got {image_size}")
        if channels not in MODES:
            raise ValueError(f"channels: expected 1 or 3, got {channels}")
        if not 0 < crop <= 1:
            raise ValueError(f"crop: expected a share in (0, 1], got {crop}")
        self.image_size = image_size
        self.channels = channels
        self.mean = MEANS[channels] if mean is None else list(mean)
        self.deviation = DEVIATIONS[channels] if deviation is None else list(deviation)
        for name, values in {"mean": self.mean, "deviation": self.deviation}.items():
            if len(values) != channels:
                raise ValueError(f"{name}: expected {channels} values, one a channel, got {values}")
        if min(self.deviation) <= 0:
            raise ValueError(f"deviation: expected values above 0, got {self.deviation}")
        self.random_crop = v2.RandomResizedCrop(image_size, scale=(crop, 1.0)) if crop < 1 else None

    def __call__(self, source: Path | str | bytes, name: str | None = None) -> Image.Image:
        """Reads a picture as it is in its file, upright.

        Args:
            source: path of the file, or its bytes.
            name: of these bytes, for messages.

        Raises:
            OSError: it is missing, truncated or no picture. Names the file, unlike Pillow's own errors.
        """
        return read_upright(source, self.channels, name)

    def evaluated(self, image: Image.Image) -> Tensor:
        """A picture scaled to cover S × S, cropped to its centre and normalised: (C, S, S)."""
        return self._normalised(covered(image, self.image_size))

    def trained(self, image: Image.Image) -> Tensor:
        """A picture cropped at random (Szegedy et al. 2015), scaled and normalised: (C, S, S)."""
        return self.evaluated(image) if self.random_crop is None else self._normalised(self.random_crop(image))

    def _normalised(self, image: Image.Image) -> Tensor:
        values = functional.pil_to_tensor(image).float() / 255
        return functional.normalize(values, self.mean, self.deviation)

    @property
    def shape(self) -> list[int]:
        """C, S, S."""
        return [self.channels, self.image_size, self.image_size]

    def plan(self) -> dict[str, Any]:
        """How `evaluated` prepares a picture, for `Data.preprocessing`."""
        return reading_plan(self.channels, self.image_size, mean=self.mean, deviation=self.deviation)


def reading_plan(channels: int, image_size: int, **statistics: list[float]) -> dict[str, Any]:
    """How a picture is covered, divided by 255 and normalised, for `Data.preprocessing`.

    Args:
        channels: 1 or 3.
        image_size: S.
        statistics: `mean` and `deviation` of each channel; without them, values stay in [0, 1].
    """
    return {
        "kind": "image",
        "channels": channels,
        "bits": 8,
        "steps": [{"cover": [image_size, image_size]}, {"divide": 255}],
        "mean": statistics.get("mean"),
        "deviation": statistics.get("deviation"),
        "pads_to": None,
        "background": BACKGROUND,
    }


def covered(image: Image.Image, side: int) -> Image.Image:
    """Scales a picture to cover side × side pixels, and crops its centre, in bytes as Pillow makes them everywhere."""
    if image.size == (side, side):
        return image
    height, width = image.height, image.width
    most = LONGEST * min(height, width)
    top, left = (max((length - most) // 2, 0) for length in (height, width))
    if top or left:
        image = image.crop((left, top, width - left, height - top))
    scale = max(side / image.height, side / image.width)
    size = [max(side, round(length * scale)) for length in (image.height, image.width)]
    picture: Any = image  # torchvision's types name tensors alone
    return functional.center_crop(functional.resize(picture, size), [side, side])  # type: ignore[return-value]  # as above


def read_upright(source: Path | str | bytes, channels: int, name: str | None = None) -> Image.Image:
    """Reads a picture, rotated upright by its EXIF orientation, as grey (1 channel) or RGB (3).

    Args:
        source: path of the file, or its bytes.
        channels: 1 or 3.
        name: of these bytes, for messages.

    Raises:
        OSError: it is missing, truncated or no picture. Names the file, unlike Pillow's own errors.
    """
    name = name or ("the image" if isinstance(source, bytes) else Path(source).as_posix())
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            image.load()
            return _with_mode(ImageOps.exif_transpose(image), MODES[channels])
    except UserError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # a PNG may raise any of these
        text = getattr(error, "strerror", None) or str(error)
        raise OSError(getattr(error, "errno", None) or EIO, text, name) from error


def _with_mode(image: Image.Image, mode: str) -> Image.Image:
    """Converts to grey or RGB, with the upper 8 of 16 bits, and with white under transparent pixels."""
    if image.mode[0] in "IF":
        values = np.asarray(image)
        if image.mode == "F" or values.min() < 0 or values.max() >= 2**16:
            raise UserError(f"expected 8 or 16 bits a channel, got values from {values.min():g} to {values.max():g}")
        is_8_bit = image.mode == "I" and image.format == "TIFF" and values.max() < 2**8
        image = Image.fromarray((values.astype(np.int64) >> (0 if is_8_bit else 8)).astype(np.uint8))
    elif image.has_transparency_data:
        layer = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layer.size, BACKGROUND), layer).convert("RGB")
    return image.convert(mode)
