"""Image files: finding them, and reading their pixels with 8 bits per channel."""

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EIO
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from playbook import UserError, files_below

FORMATS = (
    *(".avif", ".bmp", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm"),
    *(".tga", ".tif", ".tiff", ".webp"),
    *((".heic", ".heif") if find_spec("pillow_heif") else ()),
)
HEIC_BRANDS = (b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1")  # at byte 8 of such a file
SPLITS = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}  # and what they may be called
BACKGROUND = "white"  # of transparent pixels; facts hold it, and checkpoints without it keep the hidden colours
LONGEST = 8  # ratio of the sides up to which an image is scaled as a whole
FILES_NAMED = 3  # in a message; all are counted


def image_files(folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Lists the images in a folder and its subfolders, sorted, following links and skipping hidden files."""
    return files_below(folder, formats)


def lines_of(file: Path) -> list[str]:
    """Reads the lines of a list of images, without blank ones.

    Raises:
        UserError: the file is not text in UTF-8.
    """
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"--data: {file.as_posix()}: is not text in UTF-8: {error}") from error
    return [line.strip() for line in lines if line.strip()]


def split_folder(root: Path, split: str) -> Path:
    """The folder of train, val or test; val may also be called valid or validation."""
    return next((root / name for name in SPLITS[split] if (root / name).is_dir()), root / split)


def read_image(source: Path | str | bytes) -> Image.Image:
    """Reads an image with all of its pixels, rotated upright by its EXIF orientation.

    Args:
        source: path of the file, or its bytes.

    Raises:
        OSError: the file is missing, truncated or not an image. Names the file, unlike Pillow's own errors.
    """
    with opened(source) as image:
        return upright(image)


@contextmanager
def opened(source: Path | str | bytes) -> Iterator[Image.Image]:
    """Opens an image with Pillow.

    Raises:
        OSError: the file is missing, truncated or not an image. Names the file, unlike Pillow's own errors.
    """
    try:
        with _open(source) as image:
            yield image
    except UserError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # a PNG may raise any of these
        text = getattr(error, "strerror", None) or str(error)
        raise OSError(getattr(error, "errno", None) or EIO, text, name_of(source)) from error


def _open(source: Path | str | bytes) -> Image.Image:
    """Opens an image, also one of HEIC whatever its name, as phones store photos.

    Raises:
        UserError: it is one, and pillow-heif is not installed.
    """
    try:
        return Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)
    except UnidentifiedImageError:
        if not _is_heic(source):
            raise
        try:
            import pillow_heif  # pyright: ignore[reportMissingImports]  # an extra
        except ImportError as error:
            raise UserError(f"{name_of(source)}: HEIC needs pillow-heif: uv sync --extra heic") from error
        pillow_heif.register_heif_opener()
        return Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)


def _is_heic(source: Path | str | bytes) -> bool:
    if isinstance(source, bytes):
        head = source[:12]
    else:
        with open(source, "rb") as file:
            head = file.read(12)
    return head[4:8] == b"ftyp" and head[8:] in HEIC_BRANDS


@dataclass(frozen=True)
class Annotated:
    """The form of an image that its annotation refers to: upright, or as it is stored in the file.

    Args:
        size: width and height in the annotation, which tell the form of an image turned by a quarter.
        as_stored: whether the stored form is meant if width and height do not tell.
    """

    size: tuple[int, int]
    as_stored: bool = False

    def is_stored(self, stored: tuple[int, ...], turned: tuple[int, ...]) -> bool:
        """Whether the stored form is meant, by the sizes of both."""
        if stored != turned and self.size in (stored, turned):
            return self.size == stored
        return self.as_stored


def upright(image: Image.Image, form: Annotated | None = None) -> Image.Image:
    """Decodes an open image and rotates it by its EXIF orientation, unless its annotation refers to the stored form."""
    image.load()
    turned = ImageOps.exif_transpose(image)
    if form is not None and form.is_stored(image.size, turned.size):
        turned = image
    turned.format = image.format
    return turned


def on_background(image: Image.Image, mode: str) -> Image.Image:
    """Converts a decoded image to RGB or L; transparent pixels are laid on white, or colours nobody sees would count.

    playbook/deploy/runtime/images.py does the same with the plan's `background`.
    """
    if is_transparent(image):
        layer = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layer.size, BACKGROUND), layer).convert("RGB")
    return image.convert(mode)


def is_transparent(image: Image.Image) -> bool:
    """Whether a decoded image of 8 bits has a pixel that is not opaque."""
    if not image.has_transparency_data or image.mode[0] in "IF":
        return False
    low, _ = image.convert("RGBA").getchannel("A").getextrema()
    return low < 255  # type: ignore[operator]  # of one channel


def name_of(source: Path | str | bytes) -> str:
    """Name of an image for messages."""
    return "the image" if isinstance(source, bytes) else Path(source).as_posix()


def read_picture(source: Path | str | bytes) -> Tensor:
    """Reads an image to draw on, as bytes (3, H, W)."""
    from torchvision.transforms.v2.functional import pil_to_tensor  # 0.06 s, which a start without files does not need

    return pil_to_tensor(with_mode(read_image(source), "RGB"))


def middle(image: Any) -> Any:
    """Crops an image over 8 times as long as wide to its middle; scaling all of it could take gigabytes."""
    from torchvision.transforms.v2.functional import crop, get_size  # as above

    height, width = get_size(image)
    most = LONGEST * min(height, width)
    top, left = (max((side - most) // 2, 0) for side in (height, width))  # as much is left out on the other side
    if not top and not left:
        return image
    return crop(image, top, left, height - 2 * top, width - 2 * left)


def read_resized(source: Path | str | bytes, shape: Sequence[int]) -> Tensor:
    """Reads an image as bytes (C, H, W); other sizes are scaled to cover H × W and centre-cropped.

    Args:
        source: path of the file, or its bytes.
        shape: C, H, W.
    """
    from torchvision.transforms.v2.functional import center_crop, pil_to_tensor, resize  # as above

    image, sides = with_mode(read_image(source), "L" if shape[0] == 1 else "RGB"), list(shape[1:])
    if [image.height, image.width] == sides:
        return pil_to_tensor(image)
    image = middle(image)
    own = image.height, image.width
    scale = max(side / length for side, length in zip(sides, own, strict=True))
    covering = [max(side, round(length * scale)) for side, length in zip(sides, own, strict=True)]
    # by Pillow, whose bytes are the same on every processor, and in exported models
    return pil_to_tensor(center_crop(resize(image, covering), sides))


def reading_of(
    channels: int,
    steps: Sequence[dict[str, Any]],
    bits: int = 8,
    background: str | None = BACKGROUND,
    **statistics: Any,
) -> dict[str, Any]:
    """Describes how an image is read, for `Data.preprocessing`.

    Args:
        channels: 1 or 3.
        steps: those of playbook/deploy/runtime/images.py, each a dict of one key.
        bits: 8 if only the upper 8 bits of deeper values are used, else 16.
        background: colour of transparent pixels; None drops their transparency.
        statistics: `mean` and `deviation` of each channel; without them, values are not normalised.
    """
    ground = {"background": background} if background else {}
    normalised = {"mean": None, "deviation": None, **statistics}
    return {
        "kind": "image",
        "channels": channels,
        "bits": bits,
        "steps": list(steps),
        **normalised,
        "pads_to": None,
        **ground,
    }


def with_mode(image: Image.Image, mode: str) -> Image.Image:
    """Converts an image to RGB or L, with the upper 8 of 16 bits; Pillow would clip all values above 255 to white.

    A TIFF of 32 bits per channel may hold values of 8 bits, which stay as they are.

    Raises:
        ValueError: the values are floats, or integers of more than 16 bits.
    """
    if image.mode[0] in "IF":
        values = np.asarray(image)
        if image.mode == "F" or values.min() < 0 or values.max() >= 2**16:
            raise UserError(f"expected 8 or 16 bits a channel, got values from {values.min()} to {values.max()}")
        is_8_bit = image.mode == "I" and image.format == "TIFF" and values.max() < 2**8
        image = Image.fromarray((values.astype(np.int64) >> (0 if is_8_bit else 8)).astype(np.uint8))
    return on_background(image, mode)


def files_by_name(folder: Path, formats: Sequence[str]) -> dict[Path, Path]:
    """Lists the files in a folder and its subfolders by their paths without suffix.

    Raises:
        UserError: the folder is missing, or two files differ only in their suffix.
    """
    if not folder.is_dir():
        raise UserError(f"--data.root: expected a folder {folder.as_posix()}, which does not exist")
    names = {file: file.relative_to(folder).with_suffix("") for file in image_files(folder, formats)}
    files = {name: file for file, name in names.items()}
    if doubled := [file for file, name in names.items() if files[name] != file]:
        raise UserError(f"--data.root: {name_files('with the name of another image', doubled)}")
    return files


def missing_files(files: Sequence[Path]) -> list[Path]:
    """The files that do not exist; each folder is listed once, as a look at every file takes minutes on a network."""
    contents = {}
    for folder in {file.parent for file in files}:
        try:
            contents[folder] = {entry.name for entry in os.scandir(folder) if entry.is_file()}
        except OSError:  # no such folder
            contents[folder] = set()
    return [file for file in files if file.name not in contents[file.parent]]


def name_files(what: str, files: list[Path]) -> str:
    """Counts files and names the first of them, for messages."""
    return f"{len(files)} files {what}: {first_of(files)}"


def first_of(files: list[Path]) -> str:
    """Names the first of some files, for messages."""
    named = ", ".join(file.as_posix() for file in files[:FILES_NAMED])
    return named + (f" and {len(files) - FILES_NAMED} more" if len(files) > FILES_NAMED else "")
