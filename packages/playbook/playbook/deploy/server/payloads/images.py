"""The size of an image, before it is decoded."""

import io

from playbook.deploy.runtime.images import reduce
from playbook.deploy.server.limits import RefusalError
from playbook.deploy.server.payloads.body import refuse


def check_image(content: bytes, max_pixels: int, name: str = "the input", may_reduce: bool = True) -> int:
    """Refuses what is no image, and images of too many pixels, before they are decoded.

    Args:
        content: of the file.
        max_pixels: most that are decoded.
        name: of the input, for messages.
        may_reduce: whether a larger one may be decoded at reduced scale, where its format can.

    Returns:
        The number of its pixels.

    Raises:
        RefusalError: it is one of these.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as image:
            width, height = image.size
            fits = width * height <= max_pixels or (may_reduce and reduce(image, max_pixels))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise RefusalError(413, f"{name} has too many pixels; --max_pixels allows {max_pixels:,}") from error
    except Exception as error:  # a damaged file may raise anything
        if content[:4] not in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):  # a TIFF that Pillow does not read
            raise RefusalError(422, f"{name} is not an image that can be read") from error
        width, height = _tiff_size(content, name)
        fits = width * height <= max_pixels
    if not fits:
        refuse(413, f"{name} has {width} × {height} pixels, expected at most {max_pixels:,} in all (--max_pixels)")
    return width * height


def _tiff_size(content: bytes, name: str) -> tuple[int, int]:
    try:
        from tifffile import TiffFile

        with TiffFile(io.BytesIO(content)) as file:
            return sum(page.size for page in file.pages), 1  # of all planes together
    except Exception as error:  # likewise; also where tifffile is not installed
        raise RefusalError(422, f"{name} is not an image that can be read") from error
