"""TIFFs that Pillow does not read completely: many channels, stacks of pages, 16 bits in RGB."""

import io
import logging
import struct
import zlib
from errno import EIO
from pathlib import Path
from typing import Any

import numpy as np

from playbook import UserError
from src.data.vision.images import Annotated, name_of

STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # little or big endian, TIFF or BigTIFF
ALPHA = (1, 2)  # what an extra sample may be: alpha, multiplied into the colours or not
# what tifffile and its decoders raise for damaged files
FAULTS = (OSError, EOFError, ValueError, TypeError, LookupError, RuntimeError, ArithmeticError, AttributeError)


def is_tiff(source: Path | str | bytes) -> bool:
    """Whether a file or its bytes begin as a TIFF does."""
    if isinstance(source, bytes):
        return source.startswith(STARTS)
    try:
        with open(source, "rb") as file:
            return file.read(4) in STARTS
    except OSError:  # who reads it names the cause
        return False


def read_tiff(source: Path | str | bytes, channels: int, form: Annotated | None = None) -> tuple[np.ndarray, bool]:
    """Reads the first image of a TIFF, upright: samples, pages and planes together are its channels.

    Args:
        source: path of the file, or its bytes.
        channels: expected number of channels, which identifies their axis if the file does not.
        form: which form of the image its annotation refers to. Defaults to the upright one.

    Returns:
        Values (C, H, W) of the file's type, and whether the last channel is alpha.

    Raises:
        OSError: the file is missing or damaged.
        UserError: tifffile or the package for the file's compression is not installed.
    """
    name = name_of(source)
    try:
        import tifffile  # an optional extra
    except ImportError as error:
        raise UserError(f"{name}: this kind of TIFF needs tifffile: uv sync --extra tiff") from error
    tifffile.logger().setLevel(logging.CRITICAL)  # what it also raises, or reads in spite of it
    try:
        with tifffile.TiffFile(io.BytesIO(source) if isinstance(source, bytes) else source) as tiff:
            series: Any = tiff.series[0]
            page: Any = tiff.pages[0]
            values = series.asarray(maxworkers=1)  # loaders have workers of their own
            if values.shape != tuple(series.shape) or not values.size:
                raise ValueError(f"expected values of shape {tuple(series.shape)}, got {values.shape}")
            values = _channels_first(values, series.axes, channels)
            has_alpha = series.axes[-1] == "S" and page.extrasamples[-1:] in ((ALPHA[0],), (ALPHA[1],))
            turn = page.tags.valueof("Orientation", 1)
    except (ImportError, *FAULTS, tifffile.TiffFileError, struct.error, zlib.error, MemoryError) as error:
        if isinstance(error, ImportError) or "imagecodecs" in str(error):
            text = f"its compression {page.compression.name} needs imagecodecs: uv sync --extra tiff"
            raise UserError(f"{name}: {text}") from error
        text = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise OSError(getattr(error, "errno", None) or EIO, text, name) from error
    turned = _turned(values, turn)
    is_stored = form is not None and form.is_stored(values.shape[:0:-1], turned.shape[:0:-1])
    return (values if is_stored else turned), has_alpha


def _channels_first(values: np.ndarray, axes: str, channels: int) -> np.ndarray:
    """Values (C, H, W) of an array whose axes tifffile names by letters, Y and X among them."""
    if axes == "QYX" and values.shape[0] != channels == values.shape[2]:
        axes = "YXS"  # tifffile writes an array (H, W, C) as H pages (W, C) unless it is told what it holds
    ends = [axes.index(axis) for axis in "YX"]
    others = [axis for axis in range(values.ndim) if axis not in ends]
    values = values.transpose(*others, *ends)
    return values.reshape(-1, *values.shape[-2:])


def _turned(values: np.ndarray, turn: int) -> np.ndarray:
    """Turns and mirrors values (C, H, W) as TIFF's tag Orientation says."""
    if turn in (5, 6, 7, 8):
        values = values.swapaxes(1, 2)
    if turn in (2, 3, 6, 7):
        values = values[:, :, ::-1]
    return values[:, ::-1] if turn in (3, 4, 7, 8) else values
