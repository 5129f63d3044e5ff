"""Photos that are stored rotated or mirrored, and which form of them their boxes refer to."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Literal

from src.data.vision.annotations import Annotation
from src.data.vision.images import opened

ORIENTATION = 0x0112  # the tag of EXIF
EXIF_OF_PNG = {"exif", "Raw profile type exif"}  # entries of Pillow's `info`
MOST_OPENED = 1000  # images that are opened to see whether some are turned, spread evenly; 0.1 s
Form = Literal["upright", "stored"]
Size = tuple[int, int]  # width and height


def check_form(refer_to: Form | None) -> Form | None:
    """The option `boxes_refer_to`, checked.

    Raises:
        ValueError: it is neither upright nor stored.
    """
    if refer_to not in (None, "upright", "stored"):
        raise ValueError(f"boxes_refer_to: expected upright or stored, got {refer_to}")
    return refer_to


def sizes_of(file: Path) -> tuple[Size, Size, bool]:
    """Sizes of an image as stored and upright, and whether its EXIF orientation turns it.

    Raises:
        OSError: the file is missing or not an image.
    """
    with opened(file) as image:
        width, height = image.size
        # Pillow turns a TIFF itself, and would decode a PNG to look for EXIF data behind its pixels
        is_plain = image.format == "TIFF" or (image.format == "PNG" and EXIF_OF_PNG.isdisjoint(image.info))
        orientation = 1 if is_plain else image.getexif().get(ORIENTATION, 1)
    upright = (height, width) if orientation in (5, 6, 7, 8) else (width, height)
    return (width, height), upright, orientation in range(2, 9)


def settle_forms(splits: dict[str, list[Annotation]], refer_to: Form | None) -> tuple[dict[str, list[Annotation]], str]:
    """Settles which form of turned images their boxes refer to.

    Args:
        splits: annotations with the width and height of their files.
        refer_to: the form that the user names, for which all images are opened. None goes by width and height, which
            tell it of images turned by a quarter; where they do not, by what they tell of the others, else upright.

    Returns:
        The annotations, and what is said about turned images; empty if there are none.
    """
    annotations = [annotation for part in splits.values() for annotation in part if annotation.boxes is not None]
    step = 1 if refer_to else max(len(annotations) // MOST_OPENED, 1)
    forms: Counter[str] = Counter()
    sizes: dict[Path, Size] = {}  # of turned images, in the form that the user names
    for annotation in annotations[::step]:
        try:
            stored, upright, is_turned = sizes_of(annotation.file)
        except OSError:  # who loads it says so
            continue
        if is_turned:
            tells = stored != upright and annotation.size in (stored, upright)
            forms["open" if not tells else "stored" if annotation.size == stored else "upright"] += 1
            sizes[annotation.file] = stored if refer_to == "stored" else upright
    if not sizes:
        return splits, ""
    form = refer_to or ("stored" if forms["stored"] and not forms["upright"] else "upright")
    settled = {
        split: [
            replace(
                annotation,
                size=sizes.get(annotation.file, annotation.size) if refer_to else annotation.size,
                as_stored=form == "stored",
            )
            for annotation in part
        ]
        for split, part in splits.items()
    }
    text = describe_turned(len(sizes), next(iter(sizes)), form)
    if step > 1:
        text += f" ({len(annotations[::step])} of {len(annotations)} images were opened)"
    if refer_to is None and forms["stored"] and forms["upright"]:
        text += f"; by width and height, boxes of {forms['stored']} refer to the stored image"
    elif other := forms["upright" if form == "stored" else "stored"]:
        text += f"; of {other}, width and height in the annotation are those of the other form"
    elif told := forms[form]:
        text += f", as width and height of {told} say"
    return settled, text


def describe_turned(count: int, first: Path, form: str) -> str:
    """The sentence on turned images."""
    other = "upright" if form == "stored" else "stored"
    return (
        f"{count} images are turned by their EXIF orientation, such as {first.as_posix()}: boxes refer to the {form} "
        f"image (--data.boxes_refer_to {other} for the other form)"
    )
