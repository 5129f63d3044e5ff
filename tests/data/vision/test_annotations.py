"""Boxes and images that annotation files repeat, group or lack: left out, counted and said before training."""

from pathlib import Path
from typing import Any

import pytest
import torch

from playbook.errors import UserError
from src.data.vision.annotations import Annotation, Box, Checks
from src.data.vision.detection import COCODetection
from src.data.vision.yolo_detection import YOLODetection
from tests.data.vision.test_detection import (
    CAT,
    CATEGORIES,
    DOG,
    coco,
    picture,
    samples,
    voc,
    voc_corners,
    write_coco,
    write_voc,
    xml,
)


def box_of(corners: list[float] | None, label: str = "cat", is_crowd: bool = False) -> Box:
    return Box("a.json: annotation 1", label, corners, is_crowd)


@pytest.mark.parametrize(
    ("other", "is_repeated"),
    [
        (box_of([1, 2, 30, 40]), True),
        (box_of([1.001, 2, 30, 40]), True),
        (box_of([1.1, 2, 30, 40]), False),
        (box_of([1, 2, 30, 40], "dog"), False),
        (box_of([1, 2, 30, 40], is_crowd=True), False),
    ],
    ids=["same", "rounded", "moved", "another class", "crowd"],
)
def test_a_repeated_box_is_of_the_same_class_and_place(other: Box, is_repeated: bool) -> None:
    checks = Checks("stop")
    boxes = [box_of([1, 2, 30, 40]), other]
    kept = checks.without_repeated(Annotation(Path("a.png"), 0, (60, 60), boxes, source=Path("a.json")))
    assert kept == boxes[: 1 if is_repeated else 2]
    assert checks.repeated == ({"a.json": 1} if is_repeated else {})


def test_broken_boxes_are_no_repetition() -> None:
    """Each is reported by itself, and NaN equals nothing."""
    broken: list[list[float] | None] = [None, [float("nan"), 2, 3, 4], [9, 9, 9, 9]]
    for corners in broken:
        boxes = [Box(f"a.json: annotation {k}", "cat", corners) for k in range(3)]
        assert len(Checks("skip").without_repeated(Annotation(Path("a.png"), 0, (60, 60), boxes))) == 3


def test_repeated_boxes_of_voc_are_counted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in ultralytics/yolov5#10149: the same weights scored 0.72 in place of 1 on such a test set."""
    folder = write_voc(tmp_path)
    for split in ("train", "test"):
        objects = [("dog", voc_corners(DOG)), ("cat", voc_corners(CAT)), ("dog", voc_corners(DOG))]
        (folder / f"Annotations/{split}_full.xml").write_text(xml(objects))
    data = voc(folder)
    assert samples(data.test_dataloader())[0][1]["labels"].tolist() == [1, 0]
    assert data.counts == {"repeated_boxes": 2}
    place = f"{folder.as_posix()}/Annotations"
    told = f"1 in {place}/train_full.xml (box 3 (dog)), 1 in {place}/test_full.xml (box 3 (dog))"
    assert f"warning: counted 2 repeated boxes once: {told}\n" in capsys.readouterr().err


def test_repeated_boxes_of_coco_are_counted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = [
        {"id": 1, "image_id": 40, "category_id": 3, "bbox": [5, 8, 20, 22]},
        {"id": 2, "image_id": 40, "category_id": 3, "bbox": [5.0, 8.0, 20.0, 22.0]},
    ]
    for split in ("train", "val"):
        write_coco(tmp_path, split, annotations=entries)
    data = coco(tmp_path)
    for loader in (data.train_dataloader(), data.val_dataloader()):
        assert torch.cat([target["labels"] for _, target in samples(loader)]).tolist() == [0]
    assert data.counts["repeated_boxes"] == 2
    assert f"1 in {tmp_path.as_posix()}/train.json (annotation 2 (cat))" in capsys.readouterr().err


def write_yolo(root: Path, lines: list[str], exif: Any = None) -> Path:
    """Two images in train and in val, each with these lines."""
    (root / "data.yaml").write_text("names: [cat, dog]\ntrain: images/train\nval: images/val\n")
    for split in ("train", "val"):
        for kind in ("images", "labels"):
            (root / kind / split).mkdir(parents=True)
        for name in "ab":
            picture([DOG]).save(root / f"images/{split}/{name}.png", **({"exif": exif} if exif else {}))
            (root / f"labels/{split}/{name}.txt").write_text("\n".join(lines))
    return root


def yolo(root: Path, **options: Any) -> YOLODetection:
    data = YOLODetection(str(root), **options)
    data.setup("fit")
    return data


def test_repeated_lines_of_yolo_are_counted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = yolo(write_yolo(tmp_path, ["0 0.5 0.5 0.2 0.2", "1 0.5 0.5 0.2 0.2", "0 0.50 0.5 0.2 0.20"]))
    assert [target["labels"].tolist() for _, target in samples(data.val_dataloader())] == [[0, 1]] * 2
    assert data.counts == {"repeated_boxes": 4}
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert line.startswith("warning: counted 4 repeated boxes once: 1 in ")
    assert f"{tmp_path.as_posix()}/labels/train/a.txt (line 3 (cat))" in line
    assert line.endswith(" and 1 more files")


# categories of COCO that are no classes


def categories(*names: tuple[int, str, str]) -> list[dict[str, Any]]:
    return [{"id": category, "name": name, "supercategory": group} for category, name, group in names]


@pytest.mark.parametrize(
    ("entries", "classes"),
    [
        (categories((0, "pets", "none"), (3, "cat", "pets"), (90, "dog", "pets")), ["cat", "dog"]),
        (categories((0, "all", ""), (1, "pets", "all"), (3, "cat", "pets"), (90, "dog", "pets")), ["cat", "dog"]),
        (categories((0, "cat", "none"), (3, "cat", "cat"), (90, "dog", "cat")), ["cat", "dog"]),
        (categories((3, "cat", "dog"), (90, "dog", "none")), ["cat", "dog"]),
        (categories((3, "cat", "cat"), (7, "fox", "fox"), (90, "dog", "dog")), ["cat", "fox", "dog"]),
        (categories((3, "cat", "pet"), (7, "pets", "pet"), (90, "dog", "pet")), ["cat", "pets", "dog"]),
    ],
    ids=["Roboflow", "two levels", "named as a class", "a group with boxes", "groups of their own", "no group"],
)
def test_a_category_that_only_groups_others_is_no_class(
    tmp_path: Path, entries: list[dict[str, Any]], classes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """roboflow/rf-detr#1303: the export lists a super-category with id 0 and no boxes."""
    for split in ("train", "val"):
        write_coco(tmp_path, split, categories=entries)
    data = coco(tmp_path)
    assert data.facts["classes"] == classes
    assert len(data.facts["category_ids"]) == len(classes)
    assert data.counts.get("left_out_categories", 0) == len(entries) - len(classes)
    assert capsys.readouterr().err.count("warning: left out the category ") == len(entries) - len(classes)
    named = [classes[k] for k in samples(data.val_dataloader())[0][1]["labels"].tolist()]
    assert named == ["dog", "cat", "cat"]


def test_a_group_with_boxes_in_validation_alone_stays_a_class(tmp_path: Path) -> None:
    entries = categories((0, "pets", "none"), (3, "cat", "pets"), (90, "dog", "pets"))
    write_coco(tmp_path, categories=entries)
    box = {"id": 1, "image_id": 40, "category_id": 0, "bbox": [1, 2, 3, 4]}
    write_coco(tmp_path, "val", categories=entries, annotations=[box])
    assert coco(tmp_path).class_names == ["pets", "cat", "dog"]


def test_the_classes_of_a_checkpoint_stay(tmp_path: Path) -> None:
    """Also those of one that was trained while groups were classes."""
    entries = [{"id": 0, "name": "pets"}, *({**entry, "supercategory": "pets"} for entry in CATEGORIES)]
    for split in ("train", "val"):
        write_coco(tmp_path, split, categories=entries)
    data = coco(tmp_path)
    assert data.class_names == ["cat", "dog"]
    former = COCODetection(str(tmp_path), "train.json", "train", "val.json", "val")
    former.facts = {"classes": ["pets", "cat", "dog"], "category_ids": [0, 3, 90]}
    former.setup("fit")
    assert former.class_names == ["pets", "cat", "dog"]
    assert not former.counts


# images that do not exist


@pytest.mark.parametrize("kind", ["COCO", "VOC", "YOLO"])
def test_missing_images_are_counted_before_training(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """SysCV/pcan#16, ultralytics/yolov5#4010."""
    if kind == "COCO":
        write_coco(tmp_path)
        write_coco(tmp_path, "val")
        missing, total = ["train/b.png", "val/a.png"], 4
        read: Any = lambda **options: coco(tmp_path, **options)  # noqa: E731
    elif kind == "VOC":
        folder = write_voc(tmp_path)
        missing, total = [f"VOCdevkit/VOC2007/JPEGImages/{name}.jpg" for name in ("train_empty", "val_full")], 6
        read = lambda **options: voc(folder, **options)  # noqa: E731
    else:
        write_yolo(tmp_path, ["0 0.5 0.5 0.2 0.2"])
        lists = {split: [f"images/{split}/{name}.png" for name in "ab"] for split in ("train", "val")}
        for split, names in lists.items():
            (tmp_path / f"{split}.txt").write_text("\n".join(names))
        (tmp_path / "data.yaml").write_text("names: [cat, dog]\ntrain: train.txt\nval: val.txt\n")
        missing, total = ["images/train/b.png", "images/val/a.png"], 4
        read = lambda **options: yolo(tmp_path, **options)  # noqa: E731
    for name in missing:
        (tmp_path / name).unlink()
    named = ", ".join(f"{tmp_path.as_posix()}/{name}" for name in missing)
    with pytest.raises(UserError) as caught:
        read()
    text = f"2 of {total} images do not exist: {named}"
    assert str(caught.value) == f"--data.root: {text}; --data.on_error skip leaves them out"
    data = read(on_error="skip")
    assert data.counts["left_out_files"] == 2
    assert f"warning: left out {text}\n" in capsys.readouterr().err
    assert (len(data.train_set), len(data.val_set)) == (1, 1)
    assert not data.skipped_samples


def test_check_files_loads_every_sample_before_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_yolo(tmp_path, ["0 0.5 0.5 0.2 0.2"])
    for name in ("train/a", "val/b"):
        file = tmp_path / f"images/{name}.png"
        file.write_bytes(file.read_bytes()[:-40])
    assert yolo(tmp_path).counts == {}, "the headers are whole"
    with pytest.raises(
        UserError, match=r"^--data: 1 of 2 train samples cannot be loaded, such as train sample 0 \(.*/a"
    ):
        yolo(tmp_path, check_files=True)
    data = yolo(tmp_path, check_files=True, on_error="skip")
    assert data.skipped_samples == {"train 0", "val 1"}
    assert capsys.readouterr().err.count("warning: skipped ") == 2
