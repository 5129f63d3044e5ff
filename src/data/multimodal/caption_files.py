"""Finds pictures and their captions: beside each other, in tables, and in COCO's files."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from playbook import Data, UserError, decode_text, nearest
from src.data.multimodal.pairs import Pair, number_of
from src.data.multimodal.pictures import FORMATS, picture_files
from src.data.notices import name_some, refuse, warn
from src.data.row_files import SUFFIXES, Form, read_rows
from src.data.split_files import SPLITS, split_files

IMAGE_COLUMNS = ("image", "path", "file", "filename", "file_name", "filepath", "image_path")
CAPTION_COLUMNS = ("caption", "text", "title", "description", "sentence")
LAYOUTS = (
    "pictures with a .txt of the same name beside each",
    "a table of pictures and captions (.csv, .tsv, .jsonl, .parquet)",
    "annotations/captions_*.json of COCO",
)


class Columns(NamedTuple):
    """Names of the columns of a table, the first that exists of each."""

    image: Sequence[str] = IMAGE_COLUMNS
    caption: Sequence[str] = CAPTION_COLUMNS


def find_pairs(data: Data, root: Path, columns: Columns, form: Form) -> dict[str, list[Pair]]:
    """Finds the pairs of each split.

    Args:
        data: that reads them.
        root: folder, table or JSON file.
        columns: of tables.
        form: how tables are written.

    Returns:
        Pairs of train, val and test; what is not divided is `train` alone.

    Raises:
        UserError: there are none, or one cannot be used.
    """
    if not root.exists():
        raise UserError(f"--data.root {root.as_posix()}: no such file or folder")
    if root.is_file():
        if root.suffix.lower() == ".json":
            folder = root.parent.parent if root.parent.name == "annotations" else root.parent
            return {"train": _coco_pairs(data, root, folder)}
        if root.suffix.lower() not in SUFFIXES:
            raise UserError(f"--data.root {root.as_posix()}: expected a folder, or a file of {', '.join(SUFFIXES)}")
        return {"train": _table_pairs(data, [root], root.parent, columns, form)}
    if coco := _coco_files(root):
        return {split: _coco_pairs(data, file, root) for split, file in coco.items()}
    if any(entry.suffix.lower() in SUFFIXES for entry in root.iterdir() if entry.is_file()):
        files = split_files(data, root)
        return {split: _table_pairs(data, own, root, columns, form) for split, own in files.items()}
    folders = {
        split: next((root / name for name in names if (root / name).is_dir()), None) for split, names in SPLITS.items()
    }
    if folders["train"] is None:
        return {"train": _folder_pairs(data, root, root)}
    return {split: _folder_pairs(data, folder, root) for split, folder in folders.items() if folder is not None}


# pictures beside texts


def _folder_pairs(data: Data, folder: Path, root: Path) -> list[Pair]:
    pictures = picture_files(folder)
    if not pictures:
        entries = sorted(f"{path.name}/" if path.is_dir() else path.name for path in folder.iterdir())
        holds = ", ".join(entries[:5]) + (f" and {len(entries) - 5} more" if len(entries) > 5 else "") or "nothing"
        raise UserError(f"--data.root {folder.as_posix()}: expected {', '.join(LAYOUTS)}; it holds {holds}")
    pairs: list[Pair] = []
    problems: list[tuple[str, str]] = []
    stems: dict[Path, Path] = {}
    for file in pictures:
        name = file.relative_to(root).as_posix()
        text = file.with_suffix(".txt")
        if (former := stems.setdefault(text, file)) != file:
            problems.append((name, f"{file.as_posix()}: {former.name} has the same name, expected one picture a text"))
            continue
        if not text.is_file():
            problems.append((name, f"{file.as_posix()}: has no caption, expected {text.name} beside it"))
            continue
        content = decode_text(text.read_bytes(), text.as_posix(), "utf-8")
        captions = [line.strip() for line in content.splitlines() if line.strip()]
        if not captions:
            problems.append((name, f"{text.as_posix()}: is empty, expected a caption"))
            continue
        pairs += _numbered(file, captions, name)
    refuse(data, problems, len(pairs))
    texts = {path for path in folder.rglob("*.txt") if path.name[0] != "."}
    if alone := sorted(path.name for path in texts - stems.keys()):
        data._left_out("texts", len(alone), f"{name_some(alone)} without a picture of the same name")
    data.leave_out_others([folder], unmentioned=[".txt"])
    return pairs


def _numbered(file: Path, captions: Sequence[str], name: str) -> list[Pair]:
    """A pair for each caption of a picture; those after the first have a number behind the name."""
    names = [name, *(f"{name}:{place}" for place in range(2, len(captions) + 1))]
    number = number_of(file.as_posix())
    return [Pair(file, caption, own, number) for caption, own in zip(captions, names, strict=True)]


# tables


def _table_pairs(data: Data, files: Sequence[Path], folder: Path, columns: Columns, form: Form) -> list[Pair]:
    pairs: list[Pair] = []
    problems: list[tuple[str, str]] = []
    for file in files:
        for line, row in read_rows(file, form, (*columns.image, *columns.caption), partial(warn, data)):
            name = f"{file.name}:{line}"
            try:
                picture, caption = _fields(row, folder, columns)
            except UserError as error:
                problems.append((name, f"{file.as_posix()}:{line}: {error}"))
                continue
            pairs.append(Pair(picture, caption, name, number_of(picture.as_posix())))
    refuse(data, problems, len(pairs))
    return pairs


def _fields(row: dict[str, Any] | str, folder: Path, columns: Columns) -> tuple[Path, str]:
    """Picture and caption of a row.

    Raises:
        UserError: one of them is missing.
    """
    if isinstance(row, str):
        raise UserError(row)
    values = {}
    for kind, names in columns._asdict().items():
        column = next((name for name in names if name in row), None)
        if column is None:
            has = ", ".join(f"{name:.30}" for name in row)
            near = next((text for name in names if (text := nearest(name, row))), "")
            wanted = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
            raise UserError(f"expected a column {wanted}, got {has}{near}; --data.{kind}_column names it")
        value = row[column]
        if not isinstance(value, str) or not value.strip():
            raise UserError(f"the {kind} is empty" if value in (None, "") else f"expected a {kind}, got {value!r:.60}")
        values[kind] = value.strip()
    places = [folder / values["image"], folder / "images" / values["image"]]
    picture = next((place for place in places if place.is_file()), None)
    if picture is None:
        raise UserError(f"{places[0].as_posix()}: no such picture")
    if picture.suffix.lower() not in FORMATS:
        raise UserError(f"{picture.as_posix()}: expected a picture of {', '.join(FORMATS)}")
    return picture, values["caption"]


# COCO


def _coco_files(root: Path) -> dict[str, Path]:
    files = [file for folder in (root / "annotations", root) for file in sorted(folder.glob("captions_*.json"))]
    by_split: dict[str, Path] = {}
    for split, names in SPLITS.items():
        own = [file for file in files if file.stem.removeprefix("captions_").lower().startswith(names)]
        if len(own) > 1:
            both = " and ".join(file.name for file in own)
            raise UserError(f"--data.root {root.as_posix()}: has {both}, expected one file for {split}")
        by_split |= {split: own[0]} if own else {}
    if files and "train" not in by_split:
        has = ", ".join(file.name for file in files)
        raise UserError(f"--data.root {root.as_posix()}: expected captions_train*.json, got {has}")
    return by_split


def _coco_pairs(data: Data, file: Path, root: Path) -> list[Pair]:
    place = f"--data.root: {file.as_posix()}"
    try:
        content = json.loads(file.read_bytes())
        images = {entry["id"]: entry["file_name"] for entry in content["images"]}
        annotations = [(entry["image_id"], entry["caption"]) for entry in content["annotations"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{place}: expected COCO's lists `images` and `annotations` with captions: {error!r}"
        ) from error
    folder = file.stem.removeprefix("captions_")
    captions: dict[Any, list[str]] = {}
    problems: list[tuple[str, str]] = []
    for image, caption in annotations:
        if image not in images or not isinstance(caption, str) or not caption.strip():
            what = f"a caption of image {image}, which is not listed" if image not in images else "an empty caption"
            problems.append((f"{file.name}:{image}", f"{file.as_posix()}: {what}"))
            continue
        captions.setdefault(image, []).append(caption.strip())
    pairs: list[Pair] = []
    for image, name in images.items():
        places = [root / folder / name, root / "images" / folder / name, root / "images" / name, root / name]
        picture = next((path for path in places if path.is_file()), None)
        if picture is None:
            problems.append((name, f"{places[0].as_posix()}: no such picture"))
        elif image not in captions:
            problems.append((name, f"{picture.as_posix()}: has no caption in {file.name}"))
        else:
            pairs += _numbered(picture, captions[image], f"{folder}/{name}")
    refuse(data, problems, len(pairs))
    return pairs
