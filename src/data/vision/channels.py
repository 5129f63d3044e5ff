"""Reads images of any number of channels, with 8, 16 or 32 bits each."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import get_worker_info
from torchvision.transforms.v2.functional import pil_to_tensor

from playbook import UserError
from src.data.vision.images import (
    BACKGROUND,
    Annotated,
    is_transparent,
    name_of,
    on_background,
    opened,
    read_picture,
    upright,
)
from src.data.vision.tiff import is_tiff, read_tiff

MODES = {1: "L", 3: "RGB"}  # of Pillow, by the numbers of channels that files are converted to
LUMA = (0.299, 0.587, 0.114)  # share of red, green and blue in grey, as in Pillow (ITU-R 601)
BITS_PER_SAMPLE = 258  # a tag of TIFF
FULL_SCALE = {"bool": 1, "uint8": 2**8 - 1, "uint16": 2**16 - 1}


class ChannelReader:
    """Reads image files as grey, as RGB or with all of their channels; values of 16 bits keep their precision.

    Args:
        channels: number of channels. Grey and RGB files are converted to 1 or 3, with transparent pixels on white; any
            other number must be that of the files.
        value_range: values of the files that become 0 and 1. Defaults to 0 and 255 for 8 bits, 0 and 65535 for 16 bits.

    Raises:
        ValueError: there is less than one channel, or the range is empty.
    """

    def __init__(self, channels: int = 3, value_range: Sequence[float] | None = None) -> None:
        if channels < 1:
            raise ValueError(f"channels: expected at least 1, got {channels}")
        if value_range is not None and not (len(value_range) == 2 and value_range[0] < value_range[1]):
            raise ValueError(f"value_range: expected a smaller and a larger value, got {list(value_range)}")
        self.channels = channels
        self.value_range = value_range
        self.background: str | None = BACKGROUND
        self._is_told = False

    def take(self, facts: dict[str, Any]) -> None:
        """Takes the background of transparent pixels from facts, and adds it to those of a new training.

        Args:
            facts: of the data; those of an older checkpoint hold none, and transparency is dropped as it was.
        """
        if "classes" not in facts:
            facts.setdefault("background", BACKGROUND)
        self.background = facts.get("background")

    def __call__(self, source: Path | str | bytes, form: Annotated | None = None) -> Image.Image | Tensor:
        """Reads an image, rotated upright by its EXIF orientation.

        Args:
            source: path of the file, or its bytes.
            form: which form of the image its annotation refers to. Defaults to the upright one.

        Returns:
            A Pillow image for grey and RGB images of 8 bits, otherwise bytes (C, H, W) or floats, which are in [0, 1]
            unless `value_range` is narrower than the values.

        Raises:
            OSError: the file is missing, truncated or not an image.
            UserError: it has a different number of channels, its values have no known range, or it needs a package
                that is not installed.
        """
        if self.channels not in MODES and is_tiff(source):
            return self._of_tiff(source, form)
        try:
            with opened(source) as image:
                if not _exceeds_pillow(image):
                    return self._of_pillow(image, source, form)
        except OSError as error:  # Pillow takes up to four channels
            if not (isinstance(error.__cause__, UnidentifiedImageError) and is_tiff(source)):
                raise
        return self._of_tiff(source, form)

    def tensor(self, source: Path | str | bytes, form: Annotated | None = None) -> Tensor:
        """Reads an image as bytes or floats (C, H, W)."""
        image = self(source, form)
        return image if isinstance(image, Tensor) else pil_to_tensor(image)

    def picture(self, source: Path | str | bytes) -> Tensor:
        """Reads an image to draw on, as bytes (3, H, W): the first three channels, or the first one as grey."""
        image = self(source)
        if isinstance(image, Image.Image):
            return read_picture(source)
        shown = image[:3] if len(image) >= 3 else image[:1].expand(3, -1, -1)
        if not shown.is_floating_point():
            return shown
        low, high = shown.min(), shown.max()  # most files of 16 bits use a small part of their range
        return ((shown - low) / (high - low).clamp(min=1e-6) * 255).round().byte()

    def _of_pillow(
        self, image: Image.Image, source: Path | str | bytes, form: Annotated | None
    ) -> Image.Image | Tensor:
        if _is_deep_png(image):  # Pillow would keep the upper 8 bits
            values = _decoded_png(source, form)
            if self.channels in MODES and self.background and len(values) in (2, 4):
                values = _on_white(values)
            return self._asked(values, values.shape[0] in (2, 4), FULL_SCALE["uint16"], source)
        image = upright(image, form)
        if image.mode[0] in "IF":
            values = np.asarray(image)
            full_scale = None
            if image.mode[0] == "I" and values.min() >= 0 and values.max() < 2**16:
                # a TIFF of 32 bits may hold values of 8 bits
                is_8_bit = image.mode == "I" and image.format == "TIFF" and values.max() < 2**8
                full_scale = FULL_SCALE["uint8" if is_8_bit else "uint16"]
            return self._asked(values[None], False, full_scale, source)
        if self.channels in MODES:
            image = self._flattened(image, source)
            if self.value_range is None:
                return image
        elif image.mode not in ("L", "LA", "RGB", "RGBA", "CMYK"):
            is_grey = image.mode == "1"
            image = image.convert("L" if is_grey else "RGBA" if image.has_transparency_data else "RGB")
        return self._asked(pil_to_tensor(image).numpy(), False, FULL_SCALE["uint8"], source)

    def _flattened(self, image: Image.Image, source: Path | str | bytes) -> Image.Image:
        """Converts to grey or RGB, and says once that there are transparent pixels."""
        mode = MODES[self.channels]
        if self.background is None or not image.has_transparency_data:
            return image.convert(mode)
        worker = get_worker_info()
        if not self._is_told and (worker is None or worker.id == 0) and is_transparent(image):
            self._is_told = True
            text = f"{name_of(source)} has transparent pixels: they are {self.background}, in all such images"
            print(f"data: {text}", file=sys.stderr)
        return on_background(image, mode)

    def _of_tiff(self, source: Path | str | bytes, form: Annotated | None) -> Tensor:
        values, has_alpha = read_tiff(source, self.channels, form)
        return self._asked(values, has_alpha, FULL_SCALE.get(values.dtype.name), source)

    def _asked(self, values: np.ndarray, has_alpha: bool, full_scale: int | None, source: Path | str | bytes) -> Tensor:
        """Converts values (C, H, W) to the requested channels and range."""
        name, count = name_of(source), len(values)
        if has_alpha and self.channels in MODES:
            values = values[:-1]
        if len(values) != self.channels and not (len(values) in MODES and self.channels in MODES):
            shape = " × ".join(map(str, values.shape[:0:-1]))
            raise UserError(
                f"{name}: has {count} channels of {shape} pixels, expected {self.channels} as in --data.channels"
            )
        if values.dtype == np.uint8 and self.value_range is None and len(values) == self.channels:
            return torch.from_numpy(np.ascontiguousarray(values))
        if self.value_range is None and full_scale is None:
            raise UserError(
                f"{name}: expected 8 or 16 bits a channel, got {values.dtype} from {values.min():g} to "
                f"{values.max():g}; set --data.value_range to the values that become 0 and 1"
            )
        low, high = self.value_range or (0, full_scale or 1)
        image = torch.from_numpy(values.astype(np.float32, order="C")).sub_(low).div_(high - low)
        if not image.isfinite().all():
            raise UserError(f"{name}: has values that are not finite")
        if len(image) == self.channels:
            return image
        if self.channels == 1:
            return torch.tensordot(torch.tensor([LUMA]), image, dims=1)
        return image.repeat(3, 1, 1)


def _on_white(values: np.ndarray) -> np.ndarray:
    """Lays values (C, H, W) of 16 bits, of which the last are alpha, on white; keeps alpha, which counts no more."""
    share = values[-1:].astype(np.float64) / FULL_SCALE["uint16"]
    colours = values[:-1] * share + FULL_SCALE["uint16"] * (1 - share)
    return np.concatenate([colours.round().astype(np.uint16), values[-1:]])


def _exceeds_pillow(image: Image.Image) -> bool:
    """Whether Pillow would leave out bits, channels or pages of an open TIFF."""
    if image.format != "TIFF":
        return False
    bits = image.tag_v2.get(BITS_PER_SAMPLE, (1,))  # type: ignore[attr-defined]  # of the class for TIFFs
    if image.mode[0] in "1LIF" and image.mode != "LA":
        return len(bits) > 1 or getattr(image, "n_frames", 1) > 1
    return max(bits) > 8


def _is_deep_png(image: Image.Image) -> bool:
    """Whether an open image is a PNG of several channels with 16 bits each, by its raw mode."""
    return image.format == "PNG" and image.mode[0] != "I" and ";16" in image.tile[0][3]  # type: ignore[attr-defined]  # as above


def _decoded_png(source: Path | str | bytes, form: Annotated | None) -> np.ndarray:
    """Values (C, H, W) of a PNG with several channels of 16 bits; Pillow decodes 8 of these at a time.

    The byte order passed to it selects which 8: in the file, the upper ones come first.
    """
    parts = []
    for is_upper in (True, False):
        with opened(source) as image:
            tile = image.tile[0]  # type: ignore[attr-defined]  # of the class for PNGs
            if tile[3] == "LA;16B":
                image.tile = [tile._replace(args="RGBA")]  # type: ignore[attr-defined]  # its bytes as they are
                parts.append(np.asarray(upright(image, form))[..., 0 if is_upper else 1 :: 2])
            else:
                image.tile = [tile._replace(args=tile[3][:-1] + ("B" if is_upper else "L"))]  # type: ignore[attr-defined]  # as above
                parts.append(np.asarray(upright(image, form)))
    upper, lower = parts
    return (upper.astype(np.uint16) << 8 | lower).transpose(2, 0, 1)
