"""Boxes as the files of Pascal VOC and COCO have them, and what is done about broken ones."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree as ET

from src.data.images import FORMATS
from src.errors import UserError, nearest

TOLD = 10  # boxes left out that are named; all are counted
TOLERANCE = 0.01  # pixels that a box may reach out of its image without being counted


@dataclass(frozen=True, slots=True)
class Box:
    """A box as its file has it.

    Args:
        place: where it is, for messages.
        label: its class, as the file names it.
        corners: left, top, right and bottom in pixels from 0; None where there are no four numbers.
        is_crowd: around several objects; COCO leaves it out of the training, and what is found in it out of the count.
    """

    place: str
    label: Any
    corners: list[float] | None
    is_crowd: bool = False


@dataclass(frozen=True, slots=True)
class Annotation:
    """An image and its boxes as the files have them.

    Args:
        file: the image.
        image_id: its number.
        size: width and height in pixels.
        boxes: None where they are not known.
        failure: why there is no such sample, if so.
    """

    file: Path
    image_id: int
    size: tuple[int, int] = (0, 0)
    boxes: list[Box] | None = None
    failure: str = ""


class Checks:
    """Ends the run at what is broken, or leaves it out, counts it and tells of it.

    Args:
        on_error: stop or skip.
    """

    def __init__(self, on_error: Literal["stop", "skip"]) -> None:
        self.on_error = on_error
        self.left_out: list[str] = []  # a sentence a box
        self.num_clipped = 0  # boxes that reach out of their images

    def fail(self, text: str) -> None:
        """For a whole file, which is counted when the loader comes to it."""
        if self.on_error == "stop":
            raise UserError(f"--data: {text}; --data.on_error skip leaves out what is broken")

    def leave_out(self, text: str) -> None:
        """For a box."""
        self.fail(text)
        self.left_out.append(text)

    def clipped(self, box: Box, size: tuple[int, int], classes: dict[Any, int]) -> list[float] | None:
        """Corners of the part of a box that is in its image, or nothing if the box cannot be used."""
        if box.label not in classes:
            return self.leave_out(f"{box.place}: no such class{nearest(str(box.label), map(str, classes))}")
        if box.corners is None:
            return self.leave_out(f"{box.place}: expected four numbers")
        left, top, right, bottom = box.corners
        shown = f"[{left:g}, {top:g}, {right:g}, {bottom:g}]"
        if not (left < right and top < bottom):  # nor if one is no number
            return self.leave_out(f"{box.place}: {shown} has no area")
        inside = [max(left, 0), max(top, 0), min(right, size[0]), min(bottom, size[1])]
        if not (inside[0] < inside[2] and inside[1] < inside[3]):
            return self.leave_out(f"{box.place}: {shown} is outside of the image, {size[0]} × {size[1]} pixels")
        self.num_clipped += any(abs(a - b) > TOLERANCE for a, b in zip(inside, box.corners, strict=True))
        return inside

    def tell(self) -> None:
        """Prints what was left out and clipped, if anything."""
        lines = [f"left out {text}" for text in self.left_out[:TOLD]]
        if len(self.left_out) > TOLD:
            lines.append(f"left out {len(self.left_out)} boxes in all")
        if self.num_clipped:
            lines.append(f"clipped {self.num_clipped} boxes that reach out of their images")
        print("".join(f"warning: {line}\n" for line in lines), end="", file=sys.stderr)


def read_voc(folder: Path, names: list[str], checks: Checks, may_lack_boxes: bool = False) -> list[Annotation]:
    """Annotations of the images of a list.

    Args:
        folder: holds Annotations/*.xml and JPEGImages/*.jpg, or images of other formats.
        names: of the images.
        checks: told of files that cannot be read.
        may_lack_boxes: no image has a file, as in a published test set.
    """
    files = [folder / "Annotations" / f"{name}.xml" for name in names]
    lack_boxes = may_lack_boxes and not any(file.is_file() for file in files)
    found = [file for file in (folder / "JPEGImages").glob("*") if file.suffix.lower() in FORMATS]
    found.sort(key=lambda file: (file.suffix == ".jpg", file))  # of several images of one name, that one is taken
    images = {file.stem: file for file in found}
    annotations = []
    for index, (name, file) in enumerate(zip(names, files, strict=True)):
        image = images.get(name, folder / "JPEGImages" / f"{name}.jpg")
        try:
            annotations.append(Annotation(image, index) if lack_boxes else Annotation(image, index, *_read_xml(file)))
        except (OSError, ET.ParseError, ValueError, OverflowError) as error:
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
    for number, found in enumerate(root.findall("object"), start=1):
        label = found.findtext("name", "").strip()
        try:
            left, top, right, bottom = (
                float(found.findtext(f"bndbox/{side}", "")) for side in ("xmin", "ymin", "xmax", "ymax")
            )
        except ValueError:
            corners = None
        else:
            first = 1 if left < right and top < bottom else 0  # one without area is told as the file has it
            corners = [left - first, top - first, right, bottom]
        boxes.append(Box(f"{file.as_posix()}: box {number} ({label})", label, corners))
    return (width, height), boxes


class _WithoutDoctype(ET.TreeBuilder):
    """Refuses the declarations that make a small file a large one, or another file a part of it."""

    def doctype(self, *_: Any) -> None:
        raise ValueError("has a document type, which no annotation needs")


def read_coco(file: Path, folder: Path, checks: Checks) -> tuple[dict[int, str], list[Annotation]]:
    """Names of the categories by id, and the annotations of a JSON; without boxes if it has none at all.

    Args:
        file: the JSON.
        folder: of the images.
        checks: told of boxes of no image.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        names = {category["id"]: category["name"] for category in content["categories"]}
        boxes: dict[Any, list[Box]] = {image["id"]: [] for image in content["images"]}
        for number, entry in enumerate(content.get("annotations", []), start=1):
            category = entry["category_id"]
            name = names.get(category, f"category {category}")
            place = f"{file.as_posix()}: annotation {entry.get('id', number)} ({name})"
            if entry["image_id"] not in boxes:
                checks.leave_out(f"{place}: there is no image {entry['image_id']}")
            else:
                box = Box(place, category, _corners(entry.get("bbox")), bool(entry.get("iscrowd")))
                boxes[entry["image_id"]].append(box)
        annotations = [
            Annotation(
                folder / image["file_name"],
                image["id"],
                (image["width"], image["height"]),
                boxes[image["id"]] if "annotations" in content else None,
            )
            for image in content["images"]
        ]
    except (KeyError, TypeError, AttributeError) as error:
        text = f"{file.as_posix()}: is not as COCO has it: {type(error).__name__} {error}"
        raise UserError(f"--data: {text}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"--data: {file.as_posix()}: is no JSON: {error}") from error
    return names, annotations


def _corners(box: Any) -> list[float] | None:
    """From left, top, width and height."""
    try:
        left, top, width, height = map(float, box)
    except (TypeError, ValueError):
        return None
    return [left, top, left + width, top + height]
