"""Reads the annotations of YOLO, as Ultralytics defines them: a YAML for the data set, a text file for every image."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from playbook import UserError
from src.data.vision.annotations import Annotation, Box, Checks
from src.data.vision.images import SPLITS, image_files, lines_of
from src.data.vision.orientation import sizes_of

YAML_NAMES = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")  # used where there are several
SHOWN = 60  # characters of a line in a message
ROUNDING = 0.01  # what a normalised number may be beyond 0 or 1


@dataclass(frozen=True)
class Settings:
    """Settings of a data set, without its boxes.

    Args:
        file: the YAML, or the list of names.
        names: names of the classes by number.
        entries: folders of images, or lists of images, by split.
        folders: folders to which the entries may be relative.
        has_keypoints: whether key points follow the four numbers of a box.
    """

    file: Path
    names: dict[int, str] = field(default_factory=dict)
    entries: dict[str, list[str]] = field(default_factory=dict)
    folders: list[Path] = field(default_factory=list)
    has_keypoints: bool = False


def read_settings(root: Path) -> Settings:
    """Reads the YAML at root or in it; without one, the names in classes.txt or obj.names.

    Raises:
        UserError: there are several YAMLs, or the YAML cannot be used.
    """
    file = root if root.is_file() else _yaml_in(root)
    if file is None:
        lists = [root / "classes.txt", root / "labels" / "classes.txt", root / "obj.names"]
        names = next((file for file in lists if file.is_file()), lists[0])
        return Settings(names, _names(lines_of(names), names) if names.is_file() else {})
    try:
        # all values are taken as text: a class may be called no
        content = yaml.load(file.read_text(encoding="utf-8-sig"), yaml.BaseLoader)  # noqa: S506 - builds no objects
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise UserError(f"--data.root: {file.as_posix()}: is not valid YAML{where}: {problem}") from error
    if not isinstance(content, dict):
        raise UserError(f"--data.root: {file.as_posix()}: expected keys and values, such as names and train")
    names = _names(content["names"], file) if content.get("names") else {}
    count = content.get("nc") or str(len(names))
    if names and count != str(len(names)):
        raise UserError(f"--data.root: {file.as_posix()}: nc is {count}, but there are {len(names)} names")
    path = str(content.get("path") or "")
    # relative to the YAML, or to where the command runs; a path of another machine is left aside
    folders = [file.parent / path, *([Path(path)] if path else []), file.parent]
    folders = [folder for folder in dict.fromkeys(folders) if folder.is_dir()]
    return Settings(file, names, _entries(content, file), folders, "kpt_shape" in content)


def _yaml_in(root: Path) -> Path | None:
    files = sorted(file for file in root.glob("*") if file.suffix in (".yaml", ".yml"))
    known = [file for name in YAML_NAMES for file in files if file.name == name]
    if len(files) > 1 and not known:
        names = ", ".join(file.name for file in files)
        raise UserError(f"--data.root: {root.as_posix()}: expected a single YAML, or its path; found {names}")
    return next(iter([*known, *files]), None)


def _names(value: Any, file: Path) -> dict[int, str]:
    """Names of the classes by number, from a list or a mapping."""
    try:
        names = {int(key): name for key, name in (value.items() if isinstance(value, dict) else enumerate(value))}
    except ValueError:
        names = {}
    if isinstance(value, str) or not names or not all(isinstance(name, str) for name in names.values()):
        shown = "" if isinstance(value, list | dict) else f", got {value}"
        raise UserError(f"--data.root: {file.as_posix()}: names: expected a list, or names by number{shown}")
    if doubled := sorted({name for name in names.values() if list(names.values()).count(name) > 1}):
        raise UserError(f"--data.root: {file.as_posix()}: names: expected different names, {doubled[0]} occurs twice")
    return dict(sorted(names.items()))


def _entries(content: dict[str, Any], file: Path) -> dict[str, list[str]]:
    entries = {}
    for split, keys in SPLITS.items():
        key = next((key for key in keys if content.get(key)), None)
        if key is None:
            continue
        value = [content[key]] if isinstance(content[key], str) else content[key]
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise UserError(f"--data.root: {file.as_posix()}: {key}: expected a folder, a list of images or several")
        entries[split] = value
    return entries


def images_of(split: str, settings: Settings) -> list[Path]:
    """Lists the images of a split; none for a test split that does not exist, as Roboflow always names one.

    Raises:
        UserError: a folder or a list does not exist.
    """
    images = []
    for entry in settings.entries[split]:
        # Roboflow writes ../train/images for what is beside the YAML
        names = (entry, entry.removeprefix("../"))
        places = [folder / name for name in names for folder in settings.folders]
        place = next((place for place in places if place.exists()), None)
        if place is None and split == "test":
            continue
        if place is None:
            hint = "; without val, validation images are taken from train" if split == "val" else ""
            raise UserError(f"--data.root: {settings.file.as_posix()}: {split}: {entry} does not exist{hint}")
        if place.suffix == ".txt":
            images += [_listed(line, [place.parent, *settings.folders]) for line in lines_of(place)]
        else:
            images += image_files(place) if place.is_dir() else [place]
    return images


def _listed(line: str, folders: list[Path]) -> Path:
    places = [folder / line for folder in folders]
    return next((place for place in places if place.is_file()), places[0])


def label_file(image: Path) -> Path:
    """The file of an image's boxes: in the folder labels if the image is in images, or beside the image."""
    beside = image.with_suffix(".txt")
    parts = list(image.parts[:-1])
    if "images" not in parts or beside.is_file():
        return beside
    parts[len(parts) - 1 - parts[::-1].index("images")] = "labels"
    return Path(*parts, beside.name)


def read_yolo(
    pairs: list[tuple[Path, Path]],
    names: dict[int, str],
    checks: Checks,
    may_lack_boxes: bool = False,
    has_keypoints: bool = False,
    as_stored: bool = False,
) -> list[Annotation]:
    """Reads the annotations of a list of images; an image without a file has no objects.

    Args:
        pairs: images, each with its file of boxes.
        names: names of the classes by number.
        checks: handles files and boxes that cannot be used.
        may_lack_boxes: whether all files may be missing, as in a published test set.
        has_keypoints: whether key points follow the four numbers of a box.
        as_stored: whether boxes refer to the images as they are stored, not turned by their EXIF orientation.

    Raises:
        UserError: all files are missing, which usually means a wrong path.
    """
    lack_boxes = bool(pairs) and not any(file.is_file() for _, file in pairs)
    if lack_boxes and not may_lack_boxes:
        raise UserError(
            f"--data.root: none of {len(pairs)} images has a file of boxes, such as {pairs[0][1].as_posix()} for "
            f"{pairs[0][0].as_posix()}"
        )
    annotations = []
    for index, (image, file) in enumerate(pairs):
        if lack_boxes:
            annotations.append(Annotation(image, index))
            continue
        source = image
        try:
            stored, turned, is_turned = sizes_of(image)
            if is_turned:
                checks.turned.append(image)
            source = file
            lines = file.read_text(encoding="utf-8-sig").splitlines() if file.is_file() else []
        except FileNotFoundError:  # all of these are counted together
            annotations.append(Annotation(image, index))
        except (OSError, ValueError) as error:
            text = f"{source.as_posix()}: {getattr(error, 'strerror', None) or error}"
            checks.fail(text)
            annotations.append(Annotation(image, index, failure=text))
        else:
            size = stored if as_stored else turned
            boxes = [
                _box(line, f"{file.as_posix()}: line {n}", names, size, checks, has_keypoints)
                for n, line in enumerate(lines, start=1)
                if line.strip()
            ]
            boxes = [box for box in boxes if box is not None]
            annotations.append(Annotation(image, index, size, boxes, source=file, as_stored=as_stored))
    return annotations


def _box(
    line: str, place: str, names: dict[int, str], size: tuple[int, int], checks: Checks, has_keypoints: bool
) -> Box | None:
    """The box of a line, or None if it cannot be used."""
    columns, shown = line.split(), line.strip()[:SHOWN]
    is_polygon = not has_keypoints and len(columns) >= 7 and len(columns) % 2 == 1
    if len(columns) != 5 and not is_polygon and not (has_keypoints and len(columns) > 5):
        expected = "a class and x, y, width and height, or a class and x and y of at least three points"
        return checks.leave_out(f"{place}: expected {expected}, got {len(columns)} columns")
    try:
        number, *values = map(float, columns if is_polygon else columns[:5])
    except ValueError:
        return checks.leave_out(f"{place}: expected numbers, got {shown}")
    if number not in names:
        return checks.leave_out(
            f"{place}: class {columns[0]}: expected one of {min(names)} to {max(names)}, as in names"
        )
    name = names[int(number)]
    if not all(-ROUNDING <= value <= 1 + ROUNDING for value in values):
        return checks.leave_out(f"{place} ({name}): expected shares of width and height in [0, 1], got {shown}")
    if is_polygon:
        corners = [min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2])]
    else:
        x, y, width, height = values
        corners = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
    pixels = [corner * side for corner, side in zip(corners, size * 2, strict=True)]
    return Box(f"{place} ({name})", name, pixels)
