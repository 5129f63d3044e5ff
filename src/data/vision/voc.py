"""Reads the annotations of Pascal VOC: an XML file for every image."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from src.data.vision.annotations import Annotation, Box, Checks


def read_voc(pairs: list[tuple[Path, Path]], checks: Checks, may_lack_boxes: bool = False) -> list[Annotation]:
    """Reads the annotations of a list of images.

    Args:
        pairs: an image and its XML file each.
        checks: handles files that cannot be read.
        may_lack_boxes: whether all XML files may be missing, as in a published test set.
    """
    lack_boxes = may_lack_boxes and not any(file.is_file() for _, file in pairs)
    annotations = []
    for index, (image, file) in enumerate(pairs):
        try:
            size, boxes = ((0, 0), None) if lack_boxes else _read_xml(file)
            annotations.append(Annotation(image, index, size, boxes, source=file))
        except (OSError, ET.ParseError, ValueError, LookupError, OverflowError) as error:
            text = f"{file.as_posix()}: {getattr(error, 'strerror', None) or error}"
            checks.fail(text)
            annotations.append(Annotation(image, index, failure=text))
    return annotations


def _read_xml(file: Path) -> tuple[tuple[int, int], list[Box]]:
    parser = ET.XMLParser(target=_WithoutDoctype())  # noqa: S314 - without declarations there is nothing to expand
    root = ET.fromstring(file.read_bytes(), parser)  # noqa: S314 - likewise
    width, height = (int(float(root.findtext(f"size/{side}", "0"))) for side in ("width", "height"))
    if min(width, height) < 1:
        raise ValueError("expected a size with width and height above 0")
    boxes = []
    for number, element in enumerate(root.findall("object"), start=1):
        label = element.findtext("name", "").strip() or None
        try:
            left, top, right, bottom = (
                float(element.findtext(f"bndbox/{side}", "")) for side in ("xmin", "ymin", "xmax", "ymax")
            )
        except ValueError:
            corners = None
        else:
            first = 1 if left < right and top < bottom else 0  # a box without area is reported as in the file
            corners = [left - first, top - first, right, bottom]
        boxes.append(Box(f"{file.as_posix()}: box {number} ({label or 'without a name'})", label, corners))
    return (width, height), boxes


class _WithoutDoctype(ET.TreeBuilder):
    """Refuses document types, which could expand a small file to gigabytes or include other files."""

    def doctype(self, *_: Any) -> None:
        raise ValueError("has a document type, which no annotation needs")
