"""One colour for each class number, the same in every mask and picture."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

NUM_COLOURS = 256  # in the palette of a PNG file


def class_colour(number: int) -> tuple[int, int, int]:
    """The colour of a class as red, green and blue, as in the palette of Pascal VOC: 0 is black, neighbours differ.

    Args:
        number: of the class, from 0; colours repeat after 255.
    """
    red = green = blue = 0
    rest = number % NUM_COLOURS
    for bit in range(7, -1, -1):  # three bits of the number at a time, from the highest bit of each channel down
        red |= (rest & 1) << bit
        green |= (rest >> 1 & 1) << bit
        blue |= (rest >> 2 & 1) << bit
        rest >>= 3
    return red, green, blue


def palette() -> list[int]:
    """The colours of the class numbers 0 to 255, one after another, as PNG files hold them."""
    return [value for number in range(NUM_COLOURS) for value in class_colour(number)]


def mask_image(numbers: "np.ndarray") -> "Image.Image":
    """An image of class numbers (H, W) with a palette; with more classes than a palette has, 16-bit grey."""
    import numpy as np  # a start without masks needs neither
    from PIL import Image

    if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < NUM_COLOURS:
        return Image.fromarray(numbers.astype(np.uint16))
    image = Image.fromarray(numbers.astype(np.uint8))
    image.putpalette(palette())
    return image
