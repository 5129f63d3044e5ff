"""Boxes as the files of Pascal VOC and COCO have them, and what is done about broken ones."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree as ET

from playbook import UserError, nearest
from src.data.images import FORMATS

TOLD = 10  # boxes left out that are named, and as many clipped ones; all are counted
# of a box's sides in those of its image: 32 times what float32 tells apart, so left < right holds at any size
LEAST_SHARE = 2**-18
TOLERANCE = 0.01  # pixels that a box may reach out of its image without being counted


@dataclass(frozen=True, slots=True)
class Box:
    """A box as its file has it.

    Args:
        place: where it is, for messages.
        label: its class, as the file names it; None for none.
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
        self.cut: list[str] = []  # likewise, of boxes that reach out of their images

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
            return self.leave_out(f"{box.place}: no such class{nearest(str(box.label or ''), map(str, classes))}")
        if box.corners is None:
            return self.leave_out(f"{box.place}: expected four numbers")
        left, top, right, bottom = box.corners
        shown = f"[{left:g}, {top:g}, {right:g}, {bottom:g}]"
        if not all(map(isfinite, box.corners)):
            return self.leave_out(f"{box.place}: {shown}: expected four finite numbers")
        if not _has_area(box.corners, size):
            return self.leave_out(f"{box.place}: {shown} has no area")
        inside = [max(left, 0), max(top, 0), min(right, size[0]), min(bottom, size[1])]
        if not _has_area(inside, size):
            return self.leave_out(f"{box.place}: {shown} is outside of the image, {size[0]} × {size[1]} pixels")
        if any(abs(a - b) > TOLERANCE for a, b in zip(inside, box.corners, strict=True)):
            self.cut.append(f"{box.place}: {shown} reaches out of the image, {size[0]} × {size[1]} pixels")
        return inside

    def tell(self) -> None:
        """Prints what was left out and clipped, if anything."""
        lines = []
        for done, texts in {"left out": self.left_out, "clipped": self.cut}.items():
            lines += [f"{done} {text}" for text in texts[:TOLD]]
            if len(texts) > TOLD:
                lines.append(f"{done} {len(texts)} boxes in all")
        print("".join(f"warning: {line}\n" for line in lines), end="", file=sys.stderr)


def _has_area(corners: list[float], size: tuple[int, int]) -> bool:
    return all(corners[k + 2] - corners[k] >= LEAST_SHARE * size[k] for k in (0, 1))


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
    for number, found in enumerate(root.findall("object"), start=1):
        label = found.findtext("name", "").strip() or None
        try:
            left, top, right, bottom = (
                float(found.findtext(f"bndbox/{side}", "")) for side in ("xmin", "ymin", "xmax", "ymax")
            )
        except ValueError:
            corners = None
        else:
            first = 1 if left < right and top < bottom else 0  # one without area is told as the file has it
            corners = [left - first, top - first, right, bottom]
        boxes.append(Box(f"{file.as_posix()}: box {number} ({label or 'without a name'})", label, corners))
    return (width, height), boxes


class _WithoutDoctype(ET.TreeBuilder):
    """Refuses the declarations that make a small file a large one, or another file a part of it."""

    def doctype(self, *_: Any) -> None:
        raise ValueError("has a document type, which no annotation needs")


def read_coco(
    file: Path, folder: Path, checks: Checks, known: dict[Any, str] | None = None, needs_boxes: bool = False
) -> tuple[dict[Any, str], list[Annotation]]:
    """Names of the categories by id, and the annotations of a JSON; without boxes if it has none at all.

    The class of a box is the name of its category: the ids of another file may mean others.

    Args:
        file: the JSON.
        folder: of the images.
        checks: told of images and boxes that cannot be used.
        known: names of the training set's categories, for ids that the file names nothing of, unless it numbers others.
        needs_boxes: it must have annotations, be it an empty list.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"--data: {file.as_posix()}: is no JSON: {error}") from error
    names = _category_names(file, content)
    ids = {name: category for category, name in (known or {}).items()}
    if known and all(ids.get(name, category) == category for category, name in names.items()):
        names = known | names
    used: dict[str, Any] = {}  # category by name
    boxes: dict[Any, list[Box]] = {}
    for place, image in _entries(file, content, "images", "id"):
        if image["id"] in boxes:
            raise UserError(f"--data: {place}: id {image['id']!r} is that of another image before it")
        boxes[image["id"]] = []
    has_boxes = "annotations" in content
    if needs_boxes and not has_boxes:
        raise UserError(f"--data: {file.as_posix()}: has no annotations; only images to test with may lack them")
    for where, entry in _entries(file, content, "annotations") if has_boxes else []:
        if flaw := _flaw(entry, "image_id", "category_id"):
            checks.leave_out(f"{where}: {flaw}")
            continue
        category, image_id = entry["category_id"], entry["image_id"]
        name = names.get(category)
        place = f"{where} ({f'category {category!r}' if name is None else name})"
        if name is not None and used.setdefault(name, category) != category:
            raise UserError(f"--data: {place}: its category is {category!r}, another of this name is {used[name]!r}")
        if image_id not in boxes:
            checks.leave_out(f"{place}: there is no image {image_id!r}")
            continue
        try:
            is_crowd = float(entry.get("iscrowd") or 0) != 0
        except (TypeError, ValueError):
            checks.leave_out(f"{place}: iscrowd: expected 0 or 1, got {entry['iscrowd']!r}")
        else:
            boxes[image_id].append(Box(place, name, _corners(entry.get("bbox")), is_crowd))
    annotations = []
    for place, image in _entries(file, content, "images", "id"):
        size: Any = image.get("width"), image.get("height")
        flaw = _flaw(image, "file_name", kinds=(str,))
        if has_boxes and not flaw and not all(isinstance(side, int | float) and side > 0 for side in size):
            flaw = f"expected width and height above 0, got {size[0]!r} and {size[1]!r}"
        if flaw:
            checks.fail(f"{place}: {flaw}")
            annotations.append(Annotation(folder, image["id"], failure=f"{place}: {flaw}"))
        else:
            found = boxes[image["id"]] if has_boxes else None
            annotations.append(Annotation(folder / image["file_name"], image["id"], size, found))
    return names, annotations


def _entries(file: Path, content: Any, kind: str, *keys: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each entry of a list and its place for messages; it must have the keys."""
    entries = content.get(kind) if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise UserError(f"--data: {file.as_posix()}: is not as COCO has it: expected a list of {kind}")
    for index, entry in enumerate(entries):
        place = f"{file.as_posix()}: {kind}[{index}]"
        if not isinstance(entry, dict):
            raise UserError(f"--data: {place}: expected an entry of keys and values, got {entry!r}")
        if flaw := _flaw(entry, *keys):
            raise UserError(f"--data: {place}: {flaw}")
        if kind == "annotations" and "id" in entry:
            place = f"{file.as_posix()}: annotation {entry['id']}"
        yield place, entry


def _flaw(entry: dict[str, Any], *keys: str, kinds: tuple[type, ...] = (int, float, str)) -> str:
    """What is wrong with the values of keys, or nothing."""
    for key in keys:
        if key not in entry:
            return f"lacks {key}"
        if not isinstance(entry[key], kinds):
            return f"{key}: expected {'a number or ' if int in kinds else ''}text, got {entry[key]!r}"
    return ""


def _category_names(file: Path, content: Any) -> dict[Any, str]:
    """By id."""
    names: dict[Any, str] = {}
    for place, entry in _entries(file, content, "categories", "id", "name"):
        category, first = entry["id"], next(iter(names), entry["id"])
        if isinstance(category, str) != isinstance(first, str):
            raise UserError(
                f"--data: {place}: expected ids that are all numbers or all text, got {first!r} and {category!r}"
            )
        if names.setdefault(category, entry["name"]) != entry["name"]:
            raise UserError(f"--data: {place}: id {category!r} is of {names[category]} and of {entry['name']}")
    return names


def _corners(box: Any) -> list[float] | None:
    """From left, top, width and height."""
    if not isinstance(box, list):
        return None
    try:
        left, top, width, height = map(float, box)
    except (TypeError, ValueError, OverflowError):
        return None
    return [left, top, left + width, top + height]
