"""The size of an image, before it is decoded."""

import io

from playbook.deploy.server.limits import RefusalError
from playbook.deploy.server.payloads.body import refuse


def check_image(content: bytes, max_pixels: int, place: str = "") -> None:
    """Refuses what is no image, and images of too many pixels, before they are decoded.

    Raises:
        RefusalError: it is one of these.
    """
    width, height = _image_size(content, place)
    if width * height > max_pixels:
        refuse(413, f"{place}the image has {width} × {height} pixels, expected at most {max_pixels:,} in all")


def _image_size(content: bytes, place: str) -> tuple[int, int]:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as image:
            return image.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise RefusalError(413, f"{place}the image has too many pixels") from error
    except Exception as error:  # a damaged file may raise anything
        if content[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):  # a TIFF that Pillow does not read
            return _tiff_size(content, place)
        raise RefusalError(422, f"{place}is not an image that can be read") from error


def _tiff_size(content: bytes, place: str) -> tuple[int, int]:
    try:
        from tifffile import TiffFile

        with TiffFile(io.BytesIO(content)) as file:
            return sum(page.size for page in file.pages), 1  # of all planes together
    except Exception as error:  # likewise; also where tifffile is not installed
        raise RefusalError(422, f"{place}is not an image that can be read") from error
