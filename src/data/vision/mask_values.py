"""What the pixels of mask files mean: grey or palette values, or colours, as numbers of classes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from playbook import UserError
from src.data.vision.images import read_image

VALUED = ("1", "L", "P", "I", "I;16")  # modes of Pillow whose pixels are numbers
COLOURED = ("RGB", "RGBA", "RGBX", "LA", "PA")  # modes whose pixels may be grey all the same
MOST_READ = 200  # masks that are read to learn their values, spread evenly; 0.4 s for 512 × 512 pixels
MOST_LISTED = 32  # values or colours that a message suggests as an option
VOID = 255  # what most data sets give pixels without a class


class MaskValues:
    """Maps the pixels of masks to classes.

    Args:
        classes: number of the class for each value; colours are 0xRRGGBB.
        has_colours: whether pixels are told apart by colour.
        files: masks that an error looks at to suggest options; empty to suggest nothing.
    """

    def __init__(self, classes: dict[int, int], has_colours: bool = False, files: Sequence[Path] = ()) -> None:
        self.known = np.array(sorted(classes))  # (V,)
        self.numbers = np.array([classes[value] for value in self.known.tolist()])  # (V,)
        self.has_colours = has_colours
        self.files = list(files)
        self._advice: str | None = None

    def __call__(self, mask: Image.Image, file: Path) -> np.ndarray:
        """Classes (H, W) of a mask.

        Raises:
            UserError: a pixel has none.
        """
        values = colours_of(mask) if self.has_colours else values_of(mask)
        if values is None:
            raise UserError(f"{file.as_posix()}: expected palette or grey values, got {mask.mode}{self.advice(file)}")
        places = np.searchsorted(self.known, values).clip(max=len(self.known) - 1)  # (H, W)
        is_unknown = self.known[places] != values
        if is_unknown.any():
            shown = ", ".join(map(self._shown, np.unique(values[is_unknown])[:5].tolist()))
            expected = ", ".join(map(self._shown, self.known.tolist()))
            raise UserError(f"{file.as_posix()}: contains {shown}, expected only {expected}{self.advice(file)}")
        return self.numbers[places]

    def advice(self, file: Path) -> str:
        """The options that the masks suggest, after looking at some of them once."""
        if not self.files:
            return ""
        if self._advice is None:
            self._advice = f"; {suggest_options([file, *self.files], self.has_colours)}"
        return self._advice

    def _shown(self, value: int) -> str:
        return str(list(colour_of(value))) if self.has_colours else str(value)


def values_of(mask: Image.Image) -> np.ndarray | None:
    """Grey or palette values (H, W); None if the pixels are coloured."""
    if mask.mode in VALUED:
        return np.asarray(mask).astype(np.int64)
    if mask.mode not in COLOURED:
        return None
    pixels = np.asarray(mask.convert("RGB"))  # (H, W, 3)
    is_grey = (pixels == pixels[..., :1]).all()
    return pixels[..., 0].astype(np.int64) if is_grey else None


def colours_of(mask: Image.Image) -> np.ndarray:
    """Colours (H, W) as 0xRRGGBB."""
    pixels = np.asarray(mask.convert("RGB")).astype(np.int64)
    return pixels[..., 0] << 16 | pixels[..., 1] << 8 | pixels[..., 2]


def colour_of(code: int) -> tuple[int, int, int]:
    """Red, green and blue of 0xRRGGBB."""
    return code >> 16, code >> 8 & 255, code & 255


def code_of(colour: Sequence[int]) -> int:
    """0xRRGGBB of red, green and blue."""
    red, green, blue = colour
    return red << 16 | green << 8 | blue


def read_values(files: Sequence[Path], has_colours: bool = False) -> tuple[set[int], set[int]]:
    """Values and colours in some of the masks; what cannot be read is left to the loader.

    Args:
        files: the masks.
        has_colours: whether grey and palette values also count as colours.
    """
    values: set[int] = set()
    colours: set[int] = set()
    for file in files[:: -(-len(files) // MOST_READ) or 1]:
        try:
            mask = read_image(file)
        except OSError:
            continue
        pixels = None if has_colours else values_of(mask)
        if pixels is not None:
            values |= set(np.unique(pixels).tolist())
        elif has_colours or mask.mode in COLOURED:
            colours |= set(np.unique(colours_of(mask)).tolist())
    return values, colours


def suggest_options(files: Sequence[Path], has_colours: bool = False) -> str:
    """The options that the values of masks suggest, in words."""
    values, colours = read_values(files, has_colours)
    if colours:
        codes = sorted(colours | {code_of([value] * 3) for value in values if value < 256})
        if len(codes) > MOST_LISTED:
            return f"they have {len(codes)} colours; expected one for each class, without smoothing or compression"
        listed = ",".join(f"[{','.join(map(str, colour_of(code)))}]" for code in codes)
        return f"--data.colours [{listed}] names the colour of each class, --data.ignore_colour one of no class"
    return suggest_for(values)


def suggest_for(values: set[int]) -> str:
    """The options for grey or palette values, in words."""
    classes = sorted(values - {VOID})
    if VOID in values and classes in ([], [0]):
        return "see --data.values [0,255] for two classes, or --data.ignore_index 255 if such pixels have no class"
    if num_classes := consecutive(classes):
        count = f"--data.num_classes {num_classes}"
        return f"see {count} and --data.ignore_index {VOID}" if VOID in values else f"see {count}"
    if len(values) <= MOST_LISTED:
        return f"see --data.num_classes {len(values)} and --data.values [{','.join(map(str, sorted(values)))}]"
    return f"see --data.num_classes; masks hold {len(values)} values from {min(values)} to {max(values)}"


def consecutive(values: Sequence[int]) -> int:
    """Number of classes if these values are their numbers: most of 0 to K - 1 occur; else 0."""
    return max(max(values) + 1, 2) if values and max(values) < VOID and max(values) < 2 * len(values) else 0
