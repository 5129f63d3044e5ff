"""Boxes as annotation files hold them, and how broken ones are handled."""

import sys
from collections import Counter
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from playbook import UserError, nearest
from src.data.vision.images import FILES_NAMED

MOST_NAMED = 10  # skipped boxes, and clipped ones, that messages name; all are counted
# of a box's sides in those of its image: 32 times what float32 tells apart, so left < right holds at any size
LEAST_SHARE = 2**-18
TOLERANCE = 0.01  # pixels by which a box may exceed its image without being counted


@dataclass(frozen=True, slots=True)
class Box:
    """A box as in its file.

    Args:
        place: its position in the file, for messages.
        label: name of its class in the file, or None.
        corners: left, top, right and bottom in pixels from 0; None if the file has no four numbers.
        is_crowd: whether it surrounds several objects. COCO neither trains with it nor counts detections inside it.
    """

    place: str
    label: Any
    corners: list[float] | None
    is_crowd: bool = False


@dataclass(frozen=True, slots=True)
class Annotation:
    """An image and its boxes as in the files.

    Args:
        file: the image.
        image_id: number of the image.
        size: width and height in pixels.
        boxes: None if they are not known.
        failure: why the sample cannot be loaded; empty if it can.
        source: the file of its boxes.
        as_stored: whether boxes refer to the image as it is stored, not turned by its EXIF orientation, if its size
            does not tell.
    """

    file: Path
    image_id: int
    size: tuple[int, int] = (0, 0)
    boxes: list[Box] | None = None
    failure: str = ""
    source: Path | None = None
    as_stored: bool = False


class Checks:
    """Handles broken annotations: ends the run, or skips, counts and reports them.

    Args:
        on_error: stop ends the run, skip leaves out broken files and boxes.
    """

    def __init__(self, on_error: Literal["stop", "skip"]) -> None:
        self.on_error = on_error
        self.left_out: list[str] = []  # one sentence per box
        self.cut: list[str] = []  # likewise, of boxes that reach out of their images
        self.repeated: Counter[str] = Counter()  # boxes that their file holds before, by file
        self.first_repeated: dict[str, str] = {}  # place of the first of these, by file
        self.turned: list[Path] = []  # images that their EXIF orientation turns

    def fail(self, text: str) -> None:
        """Handles a broken file, which is counted when the loader reaches it."""
        if self.on_error == "stop":
            raise UserError(f"--data: {text}; --data.on_error skip leaves out what is broken")

    def leave_out(self, text: str) -> None:
        """Handles a broken box."""
        self.fail(text)
        self.left_out.append(text)

    def clipped(self, box: Box, size: tuple[int, int], classes: dict[Any, int]) -> list[float] | None:
        """Clips a box to its image; returns its corners, or None if the box cannot be used."""
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

    def without_repeated(self, annotation: Annotation) -> list[Box]:
        """The boxes of an image, each of them once: a repeated one would count as a missed object."""
        boxes: dict[Any, Box] = {}
        for box in annotation.boxes or []:
            key: Any = box.place  # a box that cannot be used is reported by itself
            if box.corners is not None and all(map(isfinite, box.corners)) and _has_area(box.corners, annotation.size):
                key = (box.label, box.is_crowd, *(round(corner / TOLERANCE) for corner in box.corners))
            if boxes.setdefault(key, box) is not box:
                file = str(annotation.source and annotation.source.as_posix())
                self.repeated[file] += 1
                self.first_repeated.setdefault(file, box.place.removeprefix(f"{file}: "))
        return list(boxes.values())

    def tell(self) -> None:
        """Reports the boxes that were skipped, clipped or repeated."""
        lines = []
        if self.repeated:
            files = [f"{n} in {file} ({self.first_repeated[file]})" for file, n in self.repeated.items()]
            more = f" and {len(files) - FILES_NAMED} more files" if len(files) > FILES_NAMED else ""
            total = self.repeated.total()
            lines.append(f"counted {total} repeated boxes once: {', '.join(files[:FILES_NAMED])}{more}")
        for done, texts in {"left out": self.left_out, "clipped": self.cut}.items():
            lines += [f"{done} {text}" for text in texts[:MOST_NAMED]]
            if len(texts) > MOST_NAMED:
                lines.append(f"{done} {len(texts)} boxes in all")
        print("".join(f"warning: {line}\n" for line in lines), end="", file=sys.stderr)


def _has_area(corners: list[float], size: tuple[int, int]) -> bool:
    return all(corners[k + 2] - corners[k] >= LEAST_SHARE * size[k] for k in (0, 1))
