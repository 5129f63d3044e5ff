"""Recognises the layout of a folder of images and boxes, as data sets are published or as tools export them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playbook import UserError, split_indices
from src.data.vision.annotations import Annotation
from src.data.vision.images import FORMATS, SPLITS, image_files, lines_of, split_folder
from src.data.vision.yolo import Settings, images_of, label_file

# kinds of JSON in COCO's folder annotations that hold no boxes, or the same ones again
WITHOUT_BOXES = ("captions", "person_keypoints", "panoptic", "stuff", "image_info")
ENTRIES_NAMED = 8  # of a folder, in a message
SIGNS = {  # what a folder of another format holds, to suggest its data module; no search of all that is below it
    "YOLODetection": ("*.yaml", "*.yml", "labels", "train/labels", "classes.txt", "obj.names"),
    "VOCDetection": (
        *("VOCdevkit", "*.xml", "train/*.xml"),
        *("[Aa]nnotations/*.xml", "[Aa]nnotations/*/*.xml", "*/[Aa]nnotations/*.xml"),
    ),
    "COCODetection": ("train/*.json", "annotations/*.json", "*.json"),
}
Pair = tuple[Path, Path]  # an image and its file of boxes, which may be missing


@dataclass(frozen=True)
class Layout:
    """The recognised layout of a folder.

    Args:
        name: description for messages.
        splits: files of train, val and test; splits without files of their own are missing.
        unmatched: files without a counterpart, by what they lack.
        lists_folders: whether images were searched for in folders; lists of COCO and VOC name them.
    """

    name: str
    splits: dict[str, Any]
    unmatched: dict[str, list[Path]] = field(default_factory=dict)
    lists_folders: bool = True


def cut(splits: dict[str, list[Annotation]], val_share: float, test_share: float) -> dict[str, list[Annotation]]:
    """Takes splits that have no files of their own from train; test only if its share is above 0.

    The choice depends only on the names of the images, not on the order in which the files list them.

    Raises:
        UserError: there are too few images for the shares.
    """
    shares = {"val": val_share, "test": test_share}
    shares = {split: share for split, share in shares.items() if share and split not in splits}
    if not shares:
        return splits
    images = sorted(splits["train"], key=lambda annotation: annotation.file.as_posix())
    parts = split_indices(len(images), [1 - sum(shares.values()), *shares.values()])
    cut_splits = {
        split: [images[i] for i in sorted(part)] for split, part in zip(["train", *shares], parts, strict=True)
    }
    for split, share in shares.items():
        if not cut_splits[split] or not cut_splits["train"]:
            empty_split = split if cut_splits["train"] else "train"
            raise UserError(f"--data.{split}_share: {share} of {len(images)} images leaves none for {empty_split}")
    return {**splits, **cut_splits}


def unknown_layout(root: Path, module: str, expected: Sequence[str]) -> UserError:
    """The error for a folder that has none of the layouts of a data module."""
    if not root.exists():
        return UserError(f"--data.root: expected a folder {root.as_posix()}, which does not exist")
    names = sorted(f"{path.name}/" if path.is_dir() else path.name for path in root.iterdir())
    more = f" and {len(names) - ENTRIES_NAMED} more" if len(names) > ENTRIES_NAMED else ""
    holds = ", ".join(names[:ENTRIES_NAMED]) + more if names else "nothing"
    others = [other for other, signs in SIGNS.items() if other != module and any(any(root.glob(s)) for s in signs)]
    hint = f". Its files may be for --data {others[0]}" if others else ""
    return UserError(f"--data.root: {root.as_posix()}: expected one of: {'; '.join(expected)}. It holds {holds}{hint}")


# Pascal VOC


def find_voc(root: Path, year: int, lists: dict[str, str | None]) -> Layout:
    """Finds pairs of an image and an XML file.

    Args:
        root: folder of the data set.
        year: of the folder VOCdevkit/VOC<year>, if there is one.
        lists: names in ImageSets/Main of the splits' lists; None for the default.
    """
    devkit = root / "VOCdevkit" / f"VOC{year}"
    folder = devkit if devkit.is_dir() else root
    if layout := _listed_voc(folder, lists) or _voc_of_splits(folder) or _whole_voc(folder):
        return layout
    if years := sorted(path.name for path in devkit.parent.glob("VOC*")):
        raise UserError(f"--data.year: expected a folder of images {devkit.as_posix()}; there is {', '.join(years)}")
    expected = [
        f"VOCdevkit/VOC{year}",
        "JPEGImages and Annotations",
        "images and annotations with XML files",
        "images beside XML files, all in one folder or in train, valid and test",
    ]
    raise unknown_layout(root, "VOCDetection", expected)


def _listed_voc(folder: Path, lists: dict[str, str | None]) -> Layout | None:
    files = {split: folder / "ImageSets" / "Main" / f"{name or split}.txt" for split, name in lists.items()}
    if not any(lists.values()) and not files["train"].is_file() and not files["val"].is_file():
        files["train"] = files["train"].with_name("trainval.txt")
        if not files["train"].is_file():
            return None
    for split, file in files.items():
        if not file.is_file() and (split == "train" or (split == "val" and lists[split])):
            options = f"--data.{split}, --data.root or --data.year"
            raise UserError(f"{options}: expected a list of images {file.as_posix()}, which does not exist")
    image_folder, xml_folder = _two_folders(folder) or (folder / "JPEGImages", folder / "Annotations")
    images = _by_name(image_folder, FORMATS)
    splits = {
        # lists of a single class append -1, 0 or 1
        split: [
            (images.get(name, image_folder / f"{name}.jpg"), xml_folder / f"{name}.xml")
            for name in (re.sub(r"\s+(-1|0|1)$", "", line) for line in lines_of(file))
        ]
        for split, file in files.items()
        if file.is_file()
    }
    name = f"Pascal VOC with lists ({', '.join(files[split].name for split in splits)})"
    return Layout(name, splits, lists_folders=False)


def _voc_of_splits(folder: Path) -> Layout | None:
    """A folder per split, either above or below those of images and XML files."""
    layout = Layout("Pascal VOC with a folder per split", {})
    below = _two_folders(folder)
    for split in SPLITS:
        own = split_folder(folder, split)
        folders = _folders_of_pairs(own)
        if folders is None and below is not None and all(split_folder(part, split).is_dir() for part in below):
            folders = (split_folder(below[0], split), split_folder(below[1], split))
        if folders is not None:
            layout.splits[split] = _pairs(*folders, layout.unmatched)
        elif split == "test" and own.is_dir():  # without boxes
            layout.splits[split] = [(image, image.with_suffix(".xml")) for image in image_files(own)]
    return layout if "train" in layout.splits else None


def _whole_voc(folder: Path) -> Layout | None:
    folders = _folders_of_pairs(folder)
    if folders is None:
        return None
    names = " and ".join(part.name for part in folders) if folders[0] != folders[1] else "images beside XML files"
    layout = Layout(f"Pascal VOC without lists, {names}", {})
    layout.splits["train"] = _pairs(*folders, layout.unmatched)
    return layout


def _folders_of_pairs(folder: Path) -> Pair | None:
    """Folders of images and of XML files, which may be the same folder."""
    return _two_folders(folder) or ((folder, folder) if any(folder.glob("*.xml")) else None)


def _two_folders(folder: Path) -> Pair | None:
    parts = {part.name.lower(): part for part in folder.glob("*") if part.is_dir()}
    boxes = parts.get("annotations")
    images = parts.get("jpegimages", parts.get("images"))
    return (images, boxes) if images and boxes and any(boxes.rglob("*.xml")) else None


def _pairs(image_folder: Path, xml_folder: Path, unmatched: dict[str, list[Path]]) -> list[Pair]:
    """Pairs files by their names, also in subfolders, and adds the others to `unmatched`."""
    images, boxes = _by_name(image_folder, FORMATS), _by_name(xml_folder, (".xml",))
    unmatched.setdefault("without an XML file", []).extend(images[name] for name in images if name not in boxes)
    unmatched.setdefault("without an image", []).extend(boxes[name] for name in boxes if name not in images)
    return [(file, boxes[name]) for name, file in images.items() if name in boxes]


def _by_name(folder: Path, formats: Sequence[str]) -> dict[str, Path]:
    """Files by their names without suffix; of several images of one name, .jpg is used."""
    files = sorted(image_files(folder, formats), key=lambda file: file.suffix == ".jpg")
    return dict(sorted((file.relative_to(folder).with_suffix("").as_posix(), file) for file in files))


# COCO


def find_coco(root: Path, options: dict[str, tuple[str | None, str | None]]) -> Layout:
    """Finds the JSON of every split, and folders in which its images may be.

    Args:
        root: folder of the data set.
        options: JSON and image folder of every split as given by the user, or None.
    """
    missing = [split for split, (file, _) in options.items() if file is None]
    name, files = _coco_files(root, missing) if missing else ("COCO", {})
    layout = Layout(name, {}, lists_folders=False)
    for split, (file, images) in options.items():
        if file is not None or split in files:
            path = root / file if file is not None else files[split]
            layout.splits[split] = (path, [root / images] if images is not None else _image_folders(root, path, split))
        elif images is not None:
            raise UserError(f"--data.{split}_images: needs --data.{split}_annotations, the JSON of these images")
    if "train" not in layout.splits:
        expected = [
            "annotations/instances_train*.json",
            "annotations/train.json",
            "train/_annotations.coco.json",
            "a single JSON beside a folder of images",
        ]
        raise unknown_layout(root, "COCODetection", expected)
    return layout


def _coco_files(root: Path, missing: list[str]) -> tuple[str, dict[str, Path]]:
    """Name of the layout, and the JSON of every split that the options do not name."""
    exported = {split: split_folder(root, split) / "_annotations.coco.json" for split in SPLITS}
    if exported["train"].is_file():
        return "COCO as Roboflow exports it", {s: f for s, f in exported.items() if f.is_file() and s in missing}
    for folder in (root / "annotations", root):
        files = [file for file in sorted(folder.glob("*.json")) if not file.name.startswith(WITHOUT_BOXES)]
        files = [file for file in files if file.name.startswith("instances")] or files
        by_split = {split: [file for file in files if _split_of(file) == split] for split in missing}
        for split, of_split in by_split.items():
            if len(of_split) > 1:
                names = ", ".join(file.relative_to(root).as_posix() for file in of_split)
                raise UserError(f"--data.{split}_annotations: expected one of {names}")
        if jsons := {split: of_split[0] for split, of_split in by_split.items() if of_split}:
            return f"COCO ({', '.join(file.relative_to(root).as_posix() for file in jsons.values())})", jsons
        if len(files) == 1 and "train" in missing:
            return f"COCO with one JSON ({files[0].relative_to(root).as_posix()})", {"train": files[0]}
    return "COCO", {}


def _split_of(file: Path) -> str | None:
    """The split that a file is named after, such as val for instances_val2017.json."""
    words = re.split(r"[\W_]+", re.sub(r"\d+$", "", file.stem.lower()))
    return next((split for split, names in SPLITS.items() if set(names) & set(words)), None)


def _image_folders(root: Path, file: Path, split: str) -> list[Path]:
    """Folders in which the images of a JSON may be, the likeliest first."""
    names = (file.stem.removeprefix("instances_"), *SPLITS[split])
    parts = [root / part / name for name in names for part in ("", "images")]
    return [file.parent, *parts, *(root / name for name in ("images", "data", "JPEGImages")), root]


# YOLO


def find_yolo(root: Path, settings: Settings) -> Layout:
    """Finds pairs of an image and a file of boxes.

    Args:
        root: folder of the data set, or its YAML.
        settings: content of the YAML; empty without one.
    """
    folder = root.parent if root.is_file() else root
    if settings.entries:
        images = {split: images_of(split, settings) for split in settings.entries}
        name = f"YOLO with {settings.file.name}"
    else:
        images = _yolo_folders(folder)
        name = "YOLO with folders images and labels"
    if not images:
        images = _beside_texts(folder)
        name = "YOLO with text files beside the images"
    if not images.get("train"):
        expected = [
            "data.yaml with names and train",
            "images and labels",
            "images and labels in train, valid and test",
            "images beside text files",
        ]
        raise unknown_layout(folder, "YOLODetection", expected)
    return Layout(name, {split: [(file, label_file(file)) for file in files] for split, files in images.items()})


def _yolo_folders(folder: Path) -> dict[str, list[Path]]:
    """Images by split: images/train, train/images, or all of images."""
    if not (folder / "labels").is_dir() and not (split_folder(folder, "train") / "labels").is_dir():
        return {}
    for parts in (("images", ""), ("", "images")):
        places = {split: split_folder(folder / parts[0], split) / parts[1] for split in SPLITS}
        if places["train"].is_dir():
            return {split: image_files(place) for split, place in places.items() if place.is_dir()}
    return {"train": image_files(folder / "images")}


def _beside_texts(folder: Path) -> dict[str, list[Path]]:
    """All images below a folder, if some have text files beside them, as LabelImg and Darknet keep them."""
    images = image_files(folder)
    return {"train": images} if any(image.with_suffix(".txt").is_file() for image in images) else {}
