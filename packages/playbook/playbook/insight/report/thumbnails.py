"""Pictures of a page: small, and part of it."""

import base64
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_PIXELS = 320  # of the shorter side, as far as the longer one has at most twice as many
MOST_BYTES = 24_000  # of a picture, so that a page with 36 of them stays below 2 MB
GAP = 6  # pixels between the picture of an answer and that of its target


def beside(left: "Image", right: "Image") -> "Image":
    """Two pictures in a row, the second as high as the first."""
    from PIL import Image

    right = right.convert("RGB").resize((max(1, round(right.width * left.height / right.height)), left.height))
    both = Image.new("RGB", (left.width + GAP + right.width, left.height), "white")
    both.paste(left.convert("RGB"), (0, 0))
    both.paste(right, (left.width + GAP, 0))
    return both


def source(picture: "Image") -> str:
    """A picture as the source of an img element: reduced until it is small enough."""
    picture = picture.convert("RGB")
    longest, shortest = max(picture.size), min(picture.size)
    most = min(2 * MOST_PIXELS, MOST_PIXELS * longest // max(shortest, 1))
    picture.thumbnail((most, most))
    kind = "png" if max(picture.size) <= 96 else "jpeg"
    for quality in (85, 75, 65, 55):
        file = io.BytesIO()
        picture.save(file, kind, quality=quality)
        if kind == "png" or file.tell() <= MOST_BYTES:
            break
        picture.thumbnail((picture.width * 4 // 5, picture.height * 4 // 5))
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
