"""Reads the annotations of COCO: one JSON file of images, categories and boxes."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playbook import UserError
from src.data.vision.annotations import Annotation, Box, Checks

NAMES_TRIED = 20  # of a JSON's images, to find their folder
CHILDREN_NAMED = 3  # of a category that groups them


@dataclass(frozen=True)
class Categories:
    """The categories of a JSON.

    Args:
        names: by id.
        parents: id of each category that groups others, which name it as their supercategory, with their names.
        used: ids of the categories that have boxes.
    """

    names: dict[Any, str]
    parents: dict[Any, list[str]]
    used: set[Any]


def read_coco(
    file: Path, folders: list[Path], checks: Checks, known: dict[Any, str] | None = None, needs_boxes: bool = False
) -> tuple[Categories, list[Annotation]]:
    """Reads a JSON in COCO's format into its categories and annotations; boxes are None if it has none.

    A box is labelled with the name of its category, as ids may differ between files.

    Args:
        file: the JSON.
        folders: folder of the images, or several in which they may be.
        checks: handles images and boxes that cannot be used.
        known: names of the training set's categories, used for ids that the file does not name, unless the two differ.
        needs_boxes: whether the file must have annotations, which may be an empty list.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"--data: {file.as_posix()}: is not valid JSON: {error}") from error
    except OSError as error:
        raise UserError(f"--data: {file.as_posix()}: {error.strerror}") from error
    names, parents = _category_names(file, content)
    ids = {name: category for category, name in (known or {}).items()}
    if known and all(ids.get(name, category) == category for category, name in names.items()):
        names = known | names
    boxes: dict[Any, list[Box]] = {}
    for place, image in _entries(file, content, "images", "id"):
        if image["id"] in boxes:
            raise UserError(f"--data: {place}: id {image['id']!r} is also the id of an earlier image")
        boxes[image["id"]] = []
    has_boxes = "annotations" in content
    if needs_boxes and not has_boxes:
        raise UserError(f"--data: {file.as_posix()}: has no annotations; only images to test with may lack them")
    used: set[Any] = set()
    if has_boxes:
        used = _sort_boxes(_entries(file, content, "annotations"), names, boxes, checks)
    names_of_images = [image.get("file_name") for _, image in _entries(file, content, "images", "id")]
    folder = _folder_of([name for name in names_of_images if isinstance(name, str)], folders, file)
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
            own_boxes = boxes[image["id"]] if has_boxes else None
            annotations.append(Annotation(folder / image["file_name"], image["id"], size, own_boxes, source=file))
    return Categories(names, parents, used), annotations


def groups_without_boxes(splits: dict[str, Categories]) -> dict[Any, str]:
    """Finds categories of train that only group others, as Roboflow writes one; they are no classes.

    Args:
        splits: categories of train and of the other splits.

    Returns:
        What is said about each of them, by its id.
    """
    train = splits["train"]
    used_names = {part.names[category] for part in splits.values() for category in part.used}
    groups = {}
    for category, children in train.parents.items():
        name = train.names[category]
        is_shared = list(train.names.values()).count(name) > 1  # Roboflow may name a class like its group
        if category not in train.used and (is_shared or name not in used_names):
            shown = ", ".join(children[:CHILDREN_NAMED]) + (" and others" if len(children) > CHILDREN_NAMED else "")
            groups[category] = f"the category {name} (id {category}): it groups {shown} and has no boxes"
    return groups


def _folder_of(names: list[str], folders: list[Path], file: Path) -> Path:
    """The first of the folders that holds images of these names.

    Raises:
        UserError: none of several folders does.
    """
    if len(folders) == 1 or not names:
        return folders[0]
    for folder in folders:
        if any((folder / name).is_file() for name in names[:NAMES_TRIED]):
            return folder
    places = ", ".join(dict.fromkeys(folder.as_posix() for folder in folders if folder.is_dir()))
    hint = "--data.train_images, --data.val_images and --data.test_images name their folders"
    raise UserError(f"--data.root: {file.as_posix()}: images such as {names[0]} are in none of {places}; {hint}")


def _sort_boxes(
    entries: Iterator[tuple[str, dict[str, Any]]], names: dict[Any, str], boxes: dict[Any, list[Box]], checks: Checks
) -> set[Any]:
    """Adds each box to those of its image; returns the ids of the categories that occur."""
    used: dict[str, Any] = {}  # category by name
    for where, entry in entries:
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
    return set(used.values())


def _entries(file: Path, content: Any, kind: str, *keys: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields each entry of a list with its position for messages; entries must have the keys."""
    entries = content.get(kind) if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise UserError(f"--data: {file.as_posix()}: is not in COCO's format: expected a list of {kind}")
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
    """What is wrong with the values of these keys; empty if nothing is."""
    for key in keys:
        if key not in entry:
            return f"lacks {key}"
        if not isinstance(entry[key], kinds):
            return f"{key}: expected {'a number or ' if int in kinds else ''}text, got {entry[key]!r}"
    return ""


def _category_names(file: Path, content: Any) -> tuple[dict[Any, str], dict[Any, list[str]]]:
    """Names of the categories by id, and the names of those that each parent groups."""
    names: dict[Any, str] = {}
    groups: dict[Any, dict[Any, str]] = {}  # names of categories by id, by their supercategory
    for place, entry in _entries(file, content, "categories", "id", "name"):
        category, first = entry["id"], next(iter(names), entry["id"])
        if isinstance(category, str) != isinstance(first, str):
            raise UserError(
                f"--data: {place}: expected ids that are all numbers or all text, got {first!r} and {category!r}"
            )
        if names.setdefault(category, entry["name"]) != entry["name"]:
            raise UserError(f"--data: {place}: id {category!r} is of {names[category]} and of {entry['name']}")
        if isinstance(group := entry.get("supercategory"), str):
            groups.setdefault(group, {})[category] = entry["name"]
    parents = {}
    for category, name in names.items():  # COCO's own person is of the supercategory person
        if children := [child for other, child in groups.get(name, {}).items() if other != category]:
            parents[category] = children
    return names, parents


def _corners(box: Any) -> list[float] | None:
    """Corners from left, top, width and height; None if those are not four numbers."""
    if not isinstance(box, list):
        return None
    try:
        left, top, width, height = map(float, box)
    except (TypeError, ValueError, OverflowError):
        return None
    return [left, top, left + width, top + height]
