"""Reads image files as evaluation did in training: upright, resized and normalised."""

import io
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .errors import InputError, Sample
from .resizing import resize

MODES = {1: "L", 3: "RGB"}  # of Pillow, by the number of channels
LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # share of red, green and blue in grey (ITU-R 601)
MOST_PIXELS = 2**27  # of a file; a larger one takes gigabytes to decode
LONGEST = 8  # ratio of the sides up to which `cover` scales an image as a whole
BITS_PER_SAMPLE = 258  # a tag of TIFF
ORIENTATION = 274  # of EXIF; from 5 on, height and width change places
PROGRESSIVE = 4  # times the limit up to which a progressive JPEG is reduced: decoding takes 3 bytes of every pixel
HEIC_BRANDS = (b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1")  # at byte 8 of such a file


def read_image(source: Any, plan: Mapping[str, Any], name: str = "image", max_pixels: int | None = None) -> Sample:
    """Reads an image as the manifest's `preprocessing` says.

    Args:
        source: path of a file, its bytes, or an image of Pillow.
        plan: `channels`, 1 or 3; `bits`, 8 to cut deeper values to their upper 8 bits, 16 to keep them; `steps`, each a
            dict of one key of `STEPS`; `background`, white, on which transparent pixels are laid, or none to drop their
            transparency; `mean` and `deviation` of each channel, or None; `pads_to`, the number of which height and
            width become multiples, with zeros at the right and bottom, or None.
        name: name of the input.
        max_pixels: most that are decoded; larger files of JPEG and JPEG 2000 are decoded at a half, a quarter or an
            eighth of their sides. Defaults to 2²⁷.

    Raises:
        InputError: the file is missing, truncated, too large, or not an image of 8 or 16 bits.
    """
    most = max_pixels or MOST_PIXELS
    with _opened(source) as image:
        width, height = image.size
        is_reduced = width * height > most
        if not reduce(image, most):
            raise InputError(f"has {width} × {height} pixels, expected at most {most:,}")
        if is_reduced and image.getexif().get(ORIENTATION, 1) >= 5:
            width, height = height, width
        pixels = _decoded(
            image, source, plan["channels"], plan.get("bits", 8), plan.get("background")
        )  # a Pillow image or floats (C, H, W)
    decoded = _size(pixels)
    for step in plan["steps"]:
        [(kind, value)] = step.items()
        pixels = STEPS[kind](pixels, value)
    values = _array(pixels)
    values = values.astype(np.float32)  # (C, H, W)
    if plan.get("mean") is not None:
        mean, deviation = (np.array(plan[key], dtype=np.float32)[:, None, None] for key in ("mean", "deviation"))
        values = (values - mean) / deviation
    if plan.get("pads_to"):
        below, beside = (-side % plan["pads_to"] for side in values.shape[1:])
        values = np.pad(values, ((0, 0), (0, below), (0, beside)))
    inputs = {name: np.ascontiguousarray(values)}
    return Sample(inputs, (height, width), decoded) if is_reduced else Sample(inputs, decoded)


def is_picture(source: Any) -> bool:
    """Whether it is an image of Pillow; without it there are none."""
    library = sys.modules.get("PIL.Image")
    return library is not None and isinstance(source, library.Image)


def reduce(image: Any, max_pixels: int) -> bool:
    """Has a file decoded at a half, a quarter or an eighth of its sides, where it is too large and its format can.

    Args:
        image: of Pillow, not decoded yet.
        max_pixels: most that may be decoded.

    Returns:
        Whether no more will be.
    """
    width, height = image.size
    if width * height <= max_pixels:
        return True
    halvings = next((n for n in (1, 2, 3) if -(-width >> n) * -(-height >> n) <= max_pixels), None)
    if halvings is None:
        return False
    if image.format in ("JPEG", "MPO"):
        if "progressive" in image.info and width * height > PROGRESSIVE * max_pixels:
            return False
        return image.draft(None, (width >> halvings, height >> halvings)) is not None
    if image.format == "JPEG2000":
        image.reduce = halvings
        return True
    return False


def reduced_file(content: bytes, max_pixels: int) -> bytes:
    """An image file with fewer pixels, as a PNG; itself where it is small enough.

    Raises:
        InputError: it cannot be read, or not be decoded at a reduced scale.
    """
    with _opened(content) as image:
        width, height = image.size
        if width * height <= max_pixels:
            return content
        if not reduce(image, max_pixels):
            raise InputError(f"has {width} × {height} pixels, expected at most {max_pixels:,}")
        pixels = _upright(image)
        file = io.BytesIO()
        (pixels.convert("RGB") if pixels.mode in ("CMYK", "YCbCr") else pixels).save(file, "PNG", compress_level=1)
        return file.getvalue()


@contextmanager
def _opened(source: Any) -> Iterator[Any]:
    from PIL import UnidentifiedImageError

    is_open = is_picture(source)
    name = "the image" if is_open or isinstance(source, bytes) else Path(source).as_posix()
    try:
        if is_open:
            picture: Any = source
            yield picture.copy()  # which is turned upright in place
            return
        with _open(source) as image:
            yield image
    except InputError as error:
        raise InputError(f"{name}: {error}") from error.__cause__
    except Exception as error:  # of damaged files, Pillow raises nearly any
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, UnidentifiedImageError) and isinstance(source, bytes):  # which names an object in memory
            text = "its format is not known"
        raise InputError(f"{name}: cannot be read as an image: {text}") from error


def _open(source: Path | str | bytes) -> Any:
    """Opens an image, also one of HEIC where pillow-heif is installed."""
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)
    except UnidentifiedImageError:
        head = source[:12] if isinstance(source, bytes) else Path(source).read_bytes()[:12]
        if head[4:8] != b"ftyp" or head[8:] not in HEIC_BRANDS:
            raise
        try:
            import pillow_heif  # pyright: ignore[reportMissingImports]  # an extra
        except ImportError as error:
            raise InputError("HEIC needs pillow-heif: pip install pillow-heif") from error
        pillow_heif.register_heif_opener()
        return Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)


def _decoded(image: Any, source: Any, channels: int, bits: int, background: str | None = None) -> Any:
    """A Pillow image of bytes, or floats (C, H, W) in [0, 1] of a file with 16 bits."""
    if bits == 16 and _exceeds_pillow(image):
        raise InputError("is a TIFF with more bits, channels or pages than Pillow reads; save it as a PNG")
    if bits == 16 and _is_deep_png(image):
        return _with_channels(_deep_png(source, background).astype(np.float32) / np.float32(2**16 - 1), channels)
    image = _upright(image)
    if image.mode[0] in "IF":
        from PIL import Image

        values = np.asarray(image)
        if image.mode == "F" or values.min() < 0 or values.max() >= 2**16:
            raise InputError(f"expected 8 or 16 bits a channel, got values from {values.min():g} to {values.max():g}")
        is_8_bit = image.mode == "I" and image.format == "TIFF" and values.max() < 2**8  # in 32 bits
        if bits == 16:
            full_scale = np.float32(2**8 - 1 if is_8_bit else 2**16 - 1)
            return _with_channels(values[None].astype(np.float32) / full_scale, channels)
        image = Image.fromarray((values.astype(np.int64) >> (0 if is_8_bit else 8)).astype(np.uint8))
    image = _on_background(image, background)
    return image if image.mode == MODES[channels] else image.convert(MODES[channels])


def _on_background(image: Any, background: str | None) -> Any:
    """Lays transparent pixels on a background; without one, their transparency is dropped."""
    if background is None or not image.has_transparency_data or image.mode[0] in "IF":
        return image
    from PIL import Image

    layer = image.convert("RGBA")
    if layer.getchannel("A").getextrema()[0] == 255:
        return image
    return Image.alpha_composite(Image.new("RGBA", layer.size, background), layer).convert("RGB")


def _upright(image: Any) -> Any:
    """Decodes an image and rotates it by its EXIF orientation."""
    from PIL import ImageOps

    image.load()
    ImageOps.exif_transpose(image, in_place=True)  # a copy would double the memory
    return image


def _exceeds_pillow(image: Any) -> bool:
    if image.format != "TIFF":
        return False
    bits = image.tag_v2.get(BITS_PER_SAMPLE, (1,))
    if image.mode[0] in "1LIF" and image.mode != "LA":
        return len(bits) > 1 or getattr(image, "n_frames", 1) > 1
    return max(bits) > 8


def _is_deep_png(image: Any) -> bool:
    return image.format == "PNG" and image.mode[0] != "I" and bool(image.tile) and ";16" in str(image.tile[0][3])


def _deep_png(source: Any, background: str | None) -> np.ndarray:
    """Values (C, H, W) of a PNG with several channels of 16 bits, of which Pillow decodes 8 at a time."""
    parts = []
    for is_upper in (True, False):
        with _opened(source) as image:
            tile = image.tile[0]
            if tile[3] == "LA;16B":
                image.tile = [tile._replace(args="RGBA")]  # its bytes as they are
                parts.append(np.asarray(_upright(image))[..., 0 if is_upper else 1 :: 2])
            else:
                image.tile = [tile._replace(args=tile[3][:-1] + ("B" if is_upper else "L"))]
                parts.append(np.asarray(_upright(image)))
    upper, lower = parts
    values = (upper.astype(np.uint16) << 8 | lower).transpose(2, 0, 1)
    if values.shape[0] not in (2, 4):
        return values
    if background is None:
        return values[:-1]  # without alpha
    share = values[-1:].astype(np.float64) / (2**16 - 1)
    return (values[:-1] * share + (2**16 - 1) * (1 - share)).round().astype(np.uint16)  # on white


def _with_channels(values: np.ndarray, channels: int) -> np.ndarray:
    """Floats (1 or 3, H, W) as grey or RGB."""
    if len(values) == channels:
        return values
    return np.tensordot(LUMA[None], values, axes=1) if channels == 1 else values.repeat(3, axis=0)


def _array(pixels: Any) -> np.ndarray:
    """Bytes or floats (C, H, W)."""
    if isinstance(pixels, np.ndarray):
        return pixels
    values = np.asarray(pixels)
    return values[None] if values.ndim == 2 else values.transpose(2, 0, 1)


def _size(pixels: Any) -> tuple[int, int]:
    return (pixels.shape[1], pixels.shape[2]) if isinstance(pixels, np.ndarray) else (pixels.height, pixels.width)


def _cut(pixels: Any, top: int, left: int, height: int, width: int) -> Any:
    if isinstance(pixels, np.ndarray):
        return pixels[:, top : top + height, left : left + width]
    return pixels.crop((left, top, left + width, top + height))


def _middle(pixels: Any, ratio: int) -> Any:
    """Cuts an image that is over `ratio` times as long as wide to its middle."""
    height, width = _size(pixels)
    most = ratio * min(height, width)
    top, left = (max((side - most) // 2, 0) for side in (height, width))
    return _cut(pixels, top, left, height - 2 * top, width - 2 * left) if top or left else pixels


def _by_pillow(pixels: Any, height: int, width: int) -> Any:
    """Resizes a Pillow image by Pillow, and floats as torch does."""
    from PIL import Image

    if _size(pixels) == (height, width):
        return pixels
    if isinstance(pixels, np.ndarray):
        return resize(pixels, (height, width))
    return pixels.resize((width, height), Image.Resampling.BILINEAR)


def _resize_shorter(pixels: Any, side: int) -> Any:
    height, width = _size(pixels)
    longer = int(side * max(height, width) / min(height, width))
    return _by_pillow(pixels, *((side, longer) if height <= width else (longer, side)))


def _center_crop(pixels: Any, sides: list[int]) -> Any:
    top, left = (round((own - side) / 2) for own, side in zip(_size(pixels), sides, strict=True))
    return _cut(pixels, top, left, *sides)


def _cover(pixels: Any, sides: list[int]) -> Any:
    """Scales an image so that it covers height and width, and crops its centre."""
    if list(_size(pixels)) == list(sides):
        return pixels
    pixels = _middle(pixels, LONGEST)  # or a line of pixels would take gigabytes
    own = _size(pixels)
    scale = max(side / length for side, length in zip(sides, own, strict=True))
    height, width = (max(side, round(length * scale)) for side, length in zip(sides, own, strict=True))
    return _center_crop(_by_pillow(pixels, height, width), sides)


def _resize(pixels: Any, sides: list[int]) -> np.ndarray:
    return resize(_array(pixels), (sides[0], sides[1]))


def _multiply(pixels: Any, factor: float) -> np.ndarray:
    values = _array(pixels)
    return values if values.dtype == np.float32 else values.astype(np.float32) * np.float32(factor)


def _divide(pixels: Any, divisor: float) -> np.ndarray:
    values = _array(pixels)
    return values if values.dtype == np.float32 else values.astype(np.float32) / np.float32(divisor)


# what a step of the preprocessing does, by its key
STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "middle": _middle,  # largest ratio of the sides
    "resize_shorter": _resize_shorter,  # pixels of the shorter side; by Pillow
    "center_crop": _center_crop,  # [H, W]
    "cover": _cover,  # [H, W], by Pillow
    "resize": _resize,  # [H, W], as torch resizes tensors
    "multiply": _multiply,  # bytes by a factor, in single precision; floats are in [0, 1] already
    "divide": _divide,  # bytes by a number
}
