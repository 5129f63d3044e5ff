"""The same images and boxes in every layout that tools write, and what is said of folders that are none of them."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from playbook.errors import UserError
from playbook.testing.command import Cli
from src.data.vision.detection import COCODetection, VOCDetection
from src.data.vision.yolo_detection import YOLODetection
from tests.conftest import ROOT

NAMES = ["cat", "dog"]
SIZE = (48, 32)  # a width and a height by which YOLO's shares are not exact for every corner
SPLITS = {"train": range(6), "val": range(6, 9), "test": range(9, 11)}
Boxes = list[tuple[str, tuple[int, int, int, int]]]


def boxes_of(number: int) -> Boxes:
    """Up to two boxes; images 2 and 8 have none."""
    cat = ("cat", (number, 3, number + 9, 17))
    dog = ("dog", (20 + number, number, 29 + number, 30))
    return [] if number % 6 == 2 else [cat] if number % 2 else [dog, cat]


def name_of(number: int) -> str:
    return f"photo {number:02}"


def write_image(folder: Path, number: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pixels = np.full((SIZE[1], SIZE[0], 3), 20 * number, dtype=np.uint8)  # each image has a grey of its own
    Image.fromarray(pixels).save(folder / f"{name_of(number)}.png")


def write_xml(folder: Path, number: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    parts = [f"<size><width>{SIZE[0]}</width><height>{SIZE[1]}</height></size>"]
    for label, (left, top, right, bottom) in boxes_of(number):
        sides = {"xmin": left + 1, "ymin": top + 1, "xmax": right, "ymax": bottom}
        corners = "".join(f"<{side}>{value}</{side}>" for side, value in sides.items())
        parts.append(f"<object><name>{label}</name><bndbox>{corners}</bndbox></object>")
    (folder / f"{name_of(number)}.xml").write_text(f"<annotation>{''.join(parts)}</annotation>")


def write_json(file: Path, numbers: Any, first: int = 1, prefix: str = "") -> None:
    """Images and annotations in reverse, as their order shall not matter."""
    file.parent.mkdir(parents=True, exist_ok=True)
    numbers = list(numbers)[::-1]
    sides = dict(zip(("width", "height"), SIZE, strict=True))
    content = {
        "categories": [{"id": first + k, "name": name} for k, name in enumerate(NAMES)],
        "images": [{"id": n, "file_name": f"{prefix}{name_of(n)}.png", **sides} for n in numbers],
        "annotations": [
            {"image_id": n, "category_id": first + NAMES.index(label), "bbox": [x, y, right - x, bottom - y]}
            for n in numbers
            for label, (x, y, right, bottom) in boxes_of(n)
        ],
    }
    file.write_text(json.dumps(content))


def label_line(label: str, corners: tuple[int, int, int, int]) -> str:
    left, top, right, bottom = corners
    shares = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
    return f"{NAMES.index(label)} {' '.join(str(x / side) for x, side in zip(shares, SIZE * 2, strict=True))}\n"


def polygon_line(label: str, corners: tuple[int, int, int, int]) -> str:
    """A rhombus that touches the middle of each side."""
    left, top, right, bottom = (x / side for x, side in zip(corners, SIZE * 2, strict=True))
    x, y = (left + right) / 2, (top + bottom) / 2
    return f"{NAMES.index(label)} {left} {y} {x} {top} {right} {y} {x} {bottom}\n"


def write_labels(folder: Path, number: int, line: Callable[..., str] = label_line) -> None:
    """Nothing for an image without boxes."""
    folder.mkdir(parents=True, exist_ok=True)
    if boxes := boxes_of(number):
        (folder / f"{name_of(number)}.txt").write_text("".join(line(*box) for box in boxes))


def each(*writers: Callable[[Path, str, int], None]) -> Callable[[Path], None]:
    """Writes all images: of the root, the split and the number."""

    def write(root: Path) -> None:
        for split, numbers in SPLITS.items():
            for number in numbers:
                for writer in writers:
                    writer(root, split, number)

    return write


def exported(split: str) -> str:
    return "valid" if split == "val" else split


def image_in(folder: str) -> Callable[[Path, str, int], None]:
    return lambda root, split, n: write_image(root / folder.format(split=split, exported=exported(split)), n)


def xml_in(folder: str) -> Callable[[Path, str, int], None]:
    return lambda root, split, n: write_xml(root / folder.format(split=split, exported=exported(split)), n)


def labels_in(folder: str, line: Callable[..., str] = label_line) -> Callable[[Path, str, int], None]:
    return lambda root, split, n: write_labels(root / folder.format(split=split, exported=exported(split)), n, line)


def lists(folder: str) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        (root / folder).mkdir(parents=True)
        for split, numbers in SPLITS.items():
            (root / folder / f"{split}.txt").write_text("".join(f"{name_of(n)}\n" for n in numbers))

    return write


def jsons(file: str, **options: Any) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        for split, numbers in SPLITS.items():
            write_json(root / file.format(split=split, exported=exported(split)), numbers, **options)

    return write


def one_json(file: str, **options: Any) -> Callable[[Path], None]:
    return lambda root: write_json(root / file, range(11), **options)


def text(file: str, content: str) -> Callable[[Path], Any]:
    return lambda root: (root / file).write_text(content)


def image_lists(root: Path) -> None:
    """One beside the YAML with paths from it, one in a folder with paths from there, one as part of a list."""
    places = {"train": "train.txt", "val": "lists/val.txt", "test": "test.txt"}
    (root / "lists").mkdir()
    for split, file in places.items():
        up = "../" if "/" in file else "./"
        lines = [f"{up}images/{split}/{name_of(n)}.png" for n in SPLITS[split]]
        (root / file).write_text("\n".join(lines))


YAML_FOLDERS = "train: images/train\nval: images/val\ntest: images/test\n"
NAMES_LIST, NAMES_DICT = "names: ['cat', 'dog']\nnc: 2\n", "names:\n  1: dog\n  0: cat\n"
BOTH = each(image_in("images/{split}"), labels_in("labels/{split}"))
Case = tuple[Any, list[Callable[[Path], Any]], str]
WITH_SPLITS: dict[str, Case] = {
    "VOC devkit": (
        VOCDetection,
        [
            each(image_in("VOCdevkit/VOC2007/JPEGImages"), xml_in("VOCdevkit/VOC2007/Annotations")),
            lists("VOCdevkit/VOC2007/ImageSets/Main"),
        ],
        "Pascal VOC with lists (train.txt, val.txt, test.txt)",
    ),
    "VOC root": (
        VOCDetection,
        [each(image_in("JPEGImages"), xml_in("Annotations")), lists("ImageSets/Main")],
        "Pascal VOC with lists (train.txt, val.txt, test.txt)",
    ),
    "VOC Roboflow": (
        VOCDetection,
        [each(image_in("{exported}"), xml_in("{exported}")), text("README.roboflow.txt", "")],
        "Pascal VOC with a folder per split",
    ),
    "VOC folders in splits": (
        VOCDetection,
        [each(image_in("{split}/images"), xml_in("{split}/annotations"))],
        "Pascal VOC with a folder per split",
    ),
    "VOC splits in folders": (
        VOCDetection,
        [each(image_in("images/{split}"), xml_in("annotations/{split}"))],
        "Pascal VOC with a folder per split",
    ),
    "COCO published": (
        COCODetection,
        [
            each(image_in("{split}2017")),
            jsons("annotations/instances_{split}2017.json"),
            text("annotations/captions_train2017.json", "{}"),
        ],
        "COCO (annotations/instances_train2017.json, annotations/instances_val2017.json, "
        "annotations/instances_test2017.json)",
    ),
    "COCO Roboflow": (
        COCODetection,
        [each(image_in("{exported}")), jsons("{exported}/_annotations.coco.json", first=0)],
        "COCO as Roboflow exports it",
    ),
    "COCO CVAT": (
        COCODetection,
        [each(image_in("images/{split}")), jsons("annotations/instances_{split}.json")],
        "COCO (annotations/instances_train.json, annotations/instances_val.json, annotations/instances_test.json)",
    ),
    "COCO plain": (
        COCODetection,
        [each(image_in("images")), jsons("annotations/{exported}.json")],
        "COCO (annotations/train.json, annotations/valid.json, annotations/test.json)",
    ),
    "COCO at root, paths in JSON": (
        COCODetection,
        [each(image_in("photos")), jsons("{split}.json", prefix="photos/")],
        "COCO (train.json, val.json, test.json)",
    ),
    "YOLO Ultralytics": (
        YOLODetection,
        [BOTH, text("data.yaml", f"path: ../datasets/pets  # elsewhere\n{YAML_FOLDERS}{NAMES_DICT}")],
        "YOLO with data.yaml",
    ),
    "YOLO Roboflow": (
        YOLODetection,
        [
            each(image_in("{exported}/images"), labels_in("{exported}/labels")),
            text(
                "data.yaml",
                f"train: ../train/images\nval: ../valid/images\ntest: ../test/images\n{NAMES_LIST}roboflow: {{}}",
            ),
        ],
        "YOLO with data.yaml",
    ),
    "YOLO lists": (
        YOLODetection,
        [
            BOTH,
            image_lists,
            text("pets.yaml", f"path: .\ntrain: train.txt\nval: lists/val.txt\ntest: [test.txt]\n{NAMES_LIST}"),
        ],
        "YOLO with pets.yaml",
    ),
    "YOLO polygons": (
        YOLODetection,
        [
            each(image_in("images/{split}"), labels_in("labels/{split}", polygon_line)),
            text("data.yaml", YAML_FOLDERS + NAMES_LIST),
        ],
        "YOLO with data.yaml",
    ),
    "YOLO beside": (
        YOLODetection,
        [
            each(image_in("{split}"), labels_in("{split}")),
            text("data.yaml", f"train: train\nval: val\ntest: test\n{NAMES_LIST}"),
        ],
        "YOLO with data.yaml",
    ),
    "YOLO without YAML": (
        YOLODetection,
        [BOTH, text("classes.txt", "cat\ndog\n")],
        "YOLO with folders images and labels",
    ),
}
WHOLE: dict[str, Case] = {
    "VOC root": (
        VOCDetection,
        [each(image_in("JPEGImages"), xml_in("Annotations"))],
        "Pascal VOC without lists, JPEGImages and Annotations",
    ),
    "VOC folders": (
        VOCDetection,
        [each(image_in("images"), xml_in("annotations"))],
        "Pascal VOC without lists, images and annotations",
    ),
    "VOC LabelImg": (
        VOCDetection,
        [each(image_in("."), xml_in("."))],
        "Pascal VOC without lists, images beside XML files",
    ),
    "COCO CVAT": (
        COCODetection,
        [each(image_in("images")), one_json("annotations/instances_default.json")],
        "COCO with one JSON (annotations/instances_default.json)",
    ),
    "COCO Label Studio": (
        COCODetection,
        [each(image_in("images")), one_json("result.json", prefix="images/", first=0)],
        "COCO with one JSON (result.json)",
    ),
    "COCO beside": (
        COCODetection,
        [each(image_in(".")), one_json("boxes.json")],
        "COCO with one JSON (boxes.json)",
    ),
    "YOLO Label Studio": (
        YOLODetection,
        [each(image_in("images"), labels_in("labels")), text("classes.txt", "cat\ndog\n")],
        "YOLO with folders images and labels",
    ),
    "YOLO LabelImg": (
        YOLODetection,
        [each(image_in("."), labels_in(".")), text("classes.txt", "cat\ndog\n")],
        "YOLO with text files beside the images",
    ),
    "YOLO Darknet": (
        YOLODetection,
        [each(image_in("obj_train_data"), labels_in("obj_train_data")), text("obj.names", "cat\ndog\n")],
        "YOLO with text files beside the images",
    ),
    "YOLO CVAT": (
        YOLODetection,
        [BOTH, text("data.yaml", f"path: ./\ntrain: [images/train, images/val, images/test]\n{NAMES_DICT}")],
        "YOLO with data.yaml",
    ),
}


def write(case: Case, root: Path, **options: Any) -> Any:
    module, writers, _ = case
    for writer in writers:
        writer(root)
    return read(module, root, **options)


def read(module: Any, root: Path, **options: Any) -> Any:
    data = module(str(root), num_workers=0, batch_size=4, **options)
    data.setup("fit")
    return data


def content(data: Any) -> dict[str, dict[str, tuple[list[Any], list[str]]]]:
    """Corners and classes by image and split, in the order of their corners, as files may have another."""
    return {
        split: {
            file.stem: (sorted(boxes.tolist()), [data.class_names[k] for k in labels])
            for file, boxes, labels in zip(part.files, part.boxes, part.labels, strict=True)
        }
        for split in SPLITS
        if (part := getattr(data, f"{split}_set")) is not None
    }


# recognised


@pytest.mark.parametrize("kind", WITH_SPLITS)
def test_all_layouts_hold_the_same(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = write(WITH_SPLITS[kind], tmp_path)
    data.setup("test")
    assert data.class_names == NAMES
    for split, numbers in SPLITS.items():
        part = getattr(data, f"{split}_set")
        by_name = {file.stem: index for index, file in enumerate(part.files)}
        assert by_name.keys() == {name_of(n) for n in numbers}
        for number in numbers:
            image, target = part[by_name[name_of(number)]]
            assert int(image.float().mean() * (1 if split == "train" else 255) + 0.5) == 20 * number
            assert target["labels"].tolist() == [NAMES.index(label) for label, _ in boxes_of(number)]
            expected = torch.tensor([corners for _, corners in boxes_of(number)]).view(-1, 4).float()
            torch.testing.assert_close(torch.as_tensor(target["boxes"]), expected, rtol=1e-6, atol=0)
            if not kind.startswith("YOLO"):
                assert torch.equal(torch.as_tensor(target["boxes"]), expected)
    told = f"data: {WITH_SPLITS[kind][2]}, 6 train, 3 val, 2 test images in {tmp_path.as_posix()}"
    assert capsys.readouterr() == ("", f"{told}\n"), "and only once"


@pytest.mark.parametrize("kind", WHOLE)
def test_validation_is_cut_where_there_is_no_list(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write(WHOLE[kind], tmp_path, val_share=0.3, test_share=0.2)
    told = "6 train, 3 val (from train), 2 test (from train) images"
    assert capsys.readouterr().err == f"data: {WHOLE[kind][2]}, {told} in {tmp_path.as_posix()}\n"
    parts = content(data)
    names = [name for part in parts.values() for name in part]
    assert sorted(names) == [name_of(n) for n in range(11)], "each is in one split"
    for split, part in parts.items():
        files = getattr(data, f"{split}_set").files
        assert files == sorted(files)
        for name, (corners, labels) in part.items():
            expected = boxes_of(int(name[-2:]))
            torch.testing.assert_close(corners, sorted([float(x) for x in box] for _, box in expected))
            assert labels == [label for label, _ in expected]
    again = read(type(data), tmp_path, val_share=0.3, test_share=0.2)
    assert content(again) == parts
    alone = read(type(data), tmp_path, val_share=0.3)
    assert alone.test_set is None
    assert {split: len(part) for split, part in content(alone).items()} == {"train": 8, "val": 3}


def test_the_cut_is_the_same_in_all_layouts(tmp_path: Path) -> None:
    cuts = []
    for kind, case in WHOLE.items():
        (tmp_path / kind).mkdir()
        if kind != "YOLO CVAT":  # whose images are in three folders
            cuts.append({split: list(part) for split, part in content(write(case, tmp_path / kind)).items()})
    assert all(cut == cuts[0] for cut in cuts)


@pytest.mark.parametrize("kind", ["VOC Roboflow", "COCO Roboflow", "YOLO without YAML"])
def test_validation_is_cut_where_only_a_test_is_apart(tmp_path: Path, kind: str) -> None:
    module, writers, _ = WITH_SPLITS[kind]
    for writer in writers:
        writer(tmp_path)
    for place in ("valid", "images/val"):
        if (tmp_path / place).is_dir():
            (tmp_path / place).rename(tmp_path / "unused")
    parts = content(read(module, tmp_path, val_share=0.5, test_share=0.4))
    assert {split: len(part) for split, part in parts.items()} == {"train": 3, "val": 3, "test": 2}
    assert set(parts["test"]) == {name_of(9), name_of(10)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"val_share": 0.01}, "^--data.val_share: 0.01 of 11 images leaves none for val$"),
        ({"val_share": 0.99}, "^--data.val_share: 0.99 of 11 images leaves none for train$"),
        ({"test_share": 0.01}, "^--data.test_share: 0.01 of 11 images leaves none for test$"),
    ],
)
def test_a_share_without_images_is_an_error(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        write(WHOLE["VOC LabelImg"], tmp_path, **options)


# options


def test_named_lists_win(tmp_path: Path) -> None:
    data = write(WITH_SPLITS["VOC root"], tmp_path, train="test", val="train")
    assert [len(part) for part in content(data).values()] == [2, 6, 2]


def test_lists_trainval_and_test(tmp_path: Path) -> None:
    for writer in WITH_SPLITS["VOC root"][1]:
        writer(tmp_path)
    main = tmp_path / "ImageSets/Main"
    (main / "val.txt").unlink()
    (main / "train.txt").rename(main / "trainval.txt")
    parts = content(read(VOCDetection, tmp_path, val_share=0.5))
    assert {split: len(part) for split, part in parts.items()} == {"train": 3, "val": 3, "test": 2}


def test_named_jsons_win(tmp_path: Path) -> None:
    for writer in WITH_SPLITS["COCO Roboflow"][1]:
        writer(tmp_path)
    shutil.copytree(tmp_path / "test", tmp_path / "elsewhere")
    data = read(COCODetection, tmp_path, val_annotations="test/_annotations.coco.json", test_images="elsewhere")
    parts = {split: list(part) for split, part in content(data).items()}
    assert set(parts["val"]) == set(parts["test"]) == {name_of(9), name_of(10)}
    assert {file.parent for file in data.test_set.files} == {tmp_path / "elsewhere"}
    assert {file.parent for file in data.val_set.files} == {tmp_path / "test"}


def test_class_names_win(tmp_path: Path) -> None:
    data = write(WITH_SPLITS["YOLO Ultralytics"], tmp_path, class_names=["Felis", "Canis"])
    assert data.class_names == ["Felis", "Canis"]
    assert content(data)["test"][name_of(9)][1] == ["Felis"]


@pytest.mark.parametrize("kind", ["VOC root", "COCO published", "YOLO Ultralytics"])
def test_the_classes_of_a_checkpoint_are_matched_by_name(tmp_path: Path, kind: str) -> None:
    module, writers, _ = WITH_SPLITS[kind]
    for writer in writers:
        writer(tmp_path)
    data = module(str(tmp_path), num_workers=0)
    data.facts["classes"] = ["fox", "dog", "cat"]
    data.setup("fit")
    assert data.class_names == ["fox", "dog", "cat"]
    assert content(data)["train"][name_of(0)][1] == ["dog", "cat"]


def test_root_may_be_the_yaml(tmp_path: Path) -> None:
    module, writers, _ = WITH_SPLITS["YOLO lists"]
    for writer in writers:
        writer(tmp_path)
    (tmp_path / "other.yaml").write_text("names: [a]\ntrain: b\n")
    with pytest.raises(UserError, match=r": expected a single YAML, or its path; found other.yaml, pets.yaml$"):
        read(module, tmp_path)
    assert [len(part) for part in content(read(module, tmp_path / "pets.yaml")).values()] == [6, 3, 2]


def test_yaml_path_may_be_another_folder(tmp_path: Path) -> None:
    BOTH(tmp_path / "datasets/pets")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/pets.yaml").write_text(f"path: ../datasets/pets\n{YAML_FOLDERS}{NAMES_LIST}")
    assert [len(part) for part in content(read(YOLODetection, tmp_path / "configs")).values()] == [6, 3, 2]


@pytest.mark.parametrize("names", ["[no, 1]", "{3: no, 7: 1}"])
def test_names_are_text_and_numbers_may_have_gaps(tmp_path: Path, names: str) -> None:
    number = 7 if "7" in names else 1
    write_image(tmp_path / "images", 0)
    (tmp_path / "labels").mkdir()
    (tmp_path / f"labels/{name_of(0)}.txt").write_text(f"{number}.0 0.5 0.5 0.5 0.5\n\n")
    (tmp_path / "data.yaml").write_text(f"train: images\nval: images\nnames: {names}\ntest:\n")
    data = read(YOLODetection, tmp_path)
    assert data.class_names == ["no", "1"]
    assert content(data)["train"][name_of(0)] == ([[12, 8, 36, 24]], ["1"])
    assert data.test_set is None


def test_key_points_are_no_polygon(tmp_path: Path) -> None:
    """A box and two key points of x and y have as many columns as a polygon of four points."""
    line = label_line("dog", (20, 0, 29, 30)).strip() + " 0.1 0.1 0.2 0.2\n"
    write_image(tmp_path / "images", 0)
    (tmp_path / "labels").mkdir()
    (tmp_path / f"labels/{name_of(0)}.txt").write_text(line)
    (tmp_path / "data.yaml").write_text(f"train: images\nval: images\nkpt_shape: [2, 2]\n{NAMES_LIST}")
    [(corners, labels)] = content(read(YOLODetection, tmp_path))["train"].values()
    torch.testing.assert_close(corners, [[20.0, 0.0, 29.0, 30.0]])
    assert labels == ["dog"]


@pytest.mark.parametrize("kind", ["VOC Roboflow", "YOLO Roboflow"])
def test_a_test_set_may_lack_its_boxes(tmp_path: Path, kind: str) -> None:
    module, writers, _ = WITH_SPLITS[kind]
    for writer in writers:
        writer(tmp_path)
    for file in [*(tmp_path / "test").rglob("*.xml"), *(tmp_path / "test").rglob("*.txt")]:
        file.unlink()
    data = read(module, tmp_path)
    assert data.test_set is None
    assert [target for _, targets in data.predict_dataloader() for target in targets] == [
        {"image_id": 0},
        {"image_id": 1},
    ]


# unknown


@pytest.mark.parametrize("module", [VOCDetection, COCODetection, YOLODetection])
def test_an_unknown_layout_is_an_error_that_says_what_there_is(tmp_path: Path, module: Any) -> None:
    for name in "abcdefghij":
        (tmp_path / name).mkdir()
    with pytest.raises(UserError) as caught:
        read(module, tmp_path)
    looked_for = {
        VOCDetection: "VOCdevkit/VOC2007; JPEGImages and Annotations; images and annotations with XML files; images "
        "beside XML files, all in one folder or in train, valid and test",
        COCODetection: "annotations/instances_train*.json; annotations/train.json; train/_annotations.coco.json; a "
        "single JSON beside a folder of images",
        YOLODetection: "data.yaml with names and train; images and labels; images and labels in train, valid and test; "
        "images beside text files",
    }[module]
    holds = "a/, b/, c/, d/, e/, f/, g/, h/ and 2 more"
    assert str(caught.value) == f"--data.root: {tmp_path.as_posix()}: expected one of: {looked_for}. It holds {holds}"
    with pytest.raises(UserError, match=r"^--data.root: expected a folder \S*/none, which does not exist$"):
        read(module, tmp_path / "none")


@pytest.mark.parametrize("kind", [*WITH_SPLITS, *(f"{kind}, whole" for kind in WHOLE)])
def test_the_format_of_another_layout_is_suggested(tmp_path: Path, kind: str) -> None:
    own, writers, _ = WHOLE[kind.removesuffix(", whole")] if kind.endswith("whole") else WITH_SPLITS[kind]
    for writer in writers:
        writer(tmp_path)
    for module in {VOCDetection, COCODetection, YOLODetection} - {own}:
        with pytest.raises(UserError, match=rf"^--data.*It holds .*\. Its files may be for --data {own.__name__}$"):
            read(module, tmp_path)


def test_two_jsons_of_a_split_are_an_error(tmp_path: Path) -> None:
    for year in (2014, 2017):
        jsons(f"annotations/instances_{{split}}{year}.json")(tmp_path)
        each(image_in(f"{{split}}{year}"))(tmp_path)
    names = "annotations/instances_train2014.json, annotations/instances_train2017.json"
    with pytest.raises(UserError, match=rf"^--data.train_annotations: expected one of {re.escape(names)}$"):
        read(COCODetection, tmp_path)
    named = {f"{split}_annotations": f"annotations/instances_{split}2014.json" for split in SPLITS}
    data = read(COCODetection, tmp_path, **named)
    assert {file.parent.name for file in data.train_set.files} == {"train2014"}


def test_images_that_are_nowhere_are_an_error(tmp_path: Path) -> None:
    each(image_in("pictures"))(tmp_path)
    one_json("result.json")(tmp_path)
    with pytest.raises(
        UserError, match=rf"result.json: images such as {name_of(10)}.png are in none of \S+; --data.tr"
    ):
        read(COCODetection, tmp_path)
    assert len(read(COCODetection, tmp_path, train_images="pictures").train_set) == 9


def test_images_need_their_json(tmp_path: Path) -> None:
    one_json("result.json")(tmp_path)
    with pytest.raises(UserError, match=r"^--data.val_images: needs --data.val_annotations, the JSON of these images$"):
        read(COCODetection, tmp_path, val_images="val")
    with pytest.raises(UserError, match=r"^--data: \S*/none.json: No such file or directory$"):
        read(COCODetection, tmp_path, train_annotations="none.json")


# broken


def test_files_without_a_counterpart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = WHOLE["VOC LabelImg"]
    write_image(tmp_path, 11)
    write_xml(tmp_path, 12)
    message = (
        rf"^--data.root: 1 files without an XML file: \S*/{name_of(11)}.png; --data.on_error skip leaves them out$"
    )
    with pytest.raises(UserError, match=message):
        write(case, tmp_path)
    data = read(VOCDetection, tmp_path, on_error="skip")
    assert sum(len(part) for part in content(data).values()) == 11
    assert data.counts == {"left_out_files": 2}
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:] == [
        f"warning: left out 1 files without an XML file: {tmp_path.as_posix()}/{name_of(11)}.png",
        f"warning: left out 1 files without an image: {tmp_path.as_posix()}/{name_of(12)}.xml",
    ]
    (tmp_path / f"{name_of(11)}.png").unlink()
    with pytest.raises(UserError, match=rf"^--data.root: 1 files without an image: \S*/{name_of(12)}.xml; "):
        read(VOCDetection, tmp_path)


LINES: dict[str, tuple[str, str]] = {
    "four columns": ("0 0.5 0.5 0.2", "expected a class and x, y, width and height, or .* three points, got 4 columns"),
    "a confidence": ("0 0.5 0.5 0.2 0.2 0.9", "expected a class and x, y, width and height, or .*, got 6 columns"),
    "odd polygon": ("0 0.5 0.5 0.2 0.2 0.9 0.1 0.3", "expected a class and .*, got 8 columns"),
    "a word": ("cat 0.5 0.5 0.2 0.2", "expected numbers, got cat 0.5 0.5 0.2 0.2"),
    "class": ("2 0.5 0.5 0.2 0.2", "class 2: expected one of 0 to 1, as in names"),
    "negative class": ("-1 0.5 0.5 0.2 0.2", "class -1: expected one of 0 to 1, as in names"),
    "half a class": ("0.5 0.5 0.5 0.2 0.2", "class 0.5: expected one of 0 to 1, as in names"),
    "pixels": ("0 20 10 5 5", r"\(cat\): expected shares of width and height in \[0, 1\], got 0 20 10 5 5"),
    "negative": ("0 0.5 0.5 -0.2 0.2", r"\(cat\): expected shares of width and height in \[0, 1\], got"),
    "nan": ("0 nan 0.5 0.2 0.2", r"\(cat\): expected shares of width and height in \[0, 1\], got"),
    "no area": ("0 0.5 0.5 0 0.25", r"\(cat\): \[24, 12, 24, 20\] has no area"),
    "polygon": ("1 0.1 0.1 0.2 0.2 3 0.1", r"\(dog\): expected shares of width and height in \[0, 1\], got"),
}


@pytest.mark.parametrize("kind", LINES)
def test_a_broken_line_is_an_error_or_a_box_less(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    line, message = LINES[kind]
    module, writers, _ = WITH_SPLITS["YOLO Ultralytics"]
    for writer in writers:
        writer(tmp_path)
    file = tmp_path / f"labels/val/{name_of(6)}.txt"
    file.write_text(f"{line}\n\n{file.read_text()}")
    with pytest.raises(UserError, match=rf"^--data: {re.escape(file.as_posix())}: line 1:? {message}.*; --data.on_er"):
        read(module, tmp_path)
    data = read(module, tmp_path, on_error="skip")
    assert data.counts == {"left_out_boxes": 1}
    assert content(data)["val"][name_of(6)][1] == ["dog", "cat"]
    assert f"warning: left out {file.as_posix()}: line 1" in capsys.readouterr().err


def test_a_box_that_reaches_out_is_clipped(tmp_path: Path) -> None:
    module, writers, _ = WITH_SPLITS["YOLO Ultralytics"]
    for writer in writers:
        writer(tmp_path)
    (tmp_path / f"labels/val/{name_of(6)}.txt").write_text("0 0.125 0.5 0.5 1.0000001\n")
    data = read(module, tmp_path)
    assert content(data)["val"][name_of(6)][0] == [[0, 0, 18, 32]]
    assert data.counts == {"clipped_boxes": 1}


BROKEN: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "bytes": ("labels/val/{}.txt", lambda file: file.write_bytes(b"\xff\xfe0"), "'utf-8' codec can't decode"),
    "no image": ("images/val/{}.png", lambda file: file.write_text("none"), "cannot identify image file"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_an_error_or_a_sample_less(tmp_path: Path, kind: str) -> None:
    place, break_it, message = BROKEN[kind]
    module, writers, _ = WITH_SPLITS["YOLO Ultralytics"]
    for writer in writers:
        writer(tmp_path)
    break_it(tmp_path / place.format(name_of(6)))
    with pytest.raises(UserError, match=rf"^--data: \S*/{place.format(name_of(6))}: {message}.*; --data.on_error skip"):
        read(module, tmp_path)
    data = read(module, tmp_path, on_error="skip")
    images = [image for images, _ in data.val_dataloader() for image in images]
    assert len(images) == 2
    assert data.skipped_samples == {"val 0"}


YAMLS: dict[str, tuple[str, str]] = {
    "broken": ("names: [cat\ntrain: images", "is not valid YAML in line 2: expected ',' or ']', but got ':'"),
    "list": ("- cat", "expected keys and values, such as names and train"),
    "number": ("names: 7", "names: expected a list, or names by number, got 7"),
    "words as keys": ("names: {cat: 0}", "names: expected a list, or names by number"),
    "nested": ("names: [[cat]]", "names: expected a list, or names by number"),
    "twice": ("names: [cat, dog, cat]", "names: expected different names, cat occurs twice"),
    "count": ("names: [cat, dog]\nnc: 3", "nc is 3, but there are 2 names"),
    "train": ("names: [cat]\ntrain: {a: b}", "train: expected a folder, a list of images or several"),
    "no train": ("names: [cat, dog]\ntrain: photos", "train: photos does not exist"),
    "no val": (
        "names: [cat, dog]\ntrain: images/train\nval: v",
        "val: v does not exist; without val, validation images are taken from train",
    ),
}


@pytest.mark.parametrize("kind", YAMLS)
@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_yaml_that_cannot_be_used_is_an_error(tmp_path: Path, kind: str, on_error: str) -> None:
    yaml, message = YAMLS[kind]
    BOTH(tmp_path)
    (tmp_path / "data.yaml").write_text(yaml)
    with pytest.raises(UserError) as caught:
        read(YOLODetection, tmp_path, on_error=on_error)
    assert str(caught.value) == f"--data.root: {(tmp_path / 'data.yaml').as_posix()}: {message}"


def test_names_must_be_known(tmp_path: Path) -> None:
    BOTH(tmp_path)
    with pytest.raises(
        UserError, match=r"^--data.class_names: expected names of the classes, .* none in \S*/classes.t"
    ):
        read(YOLODetection, tmp_path)
    with pytest.raises(ValueError, match=r"class_names: expected different names, got \['a', 'a'\]"):
        YOLODetection(class_names=["a", "a"])
    assert len(read(YOLODetection, tmp_path, class_names=NAMES).train_set) == 6


def test_images_without_any_file_of_boxes_are_a_wrong_path(tmp_path: Path) -> None:
    module, writers, _ = WITH_SPLITS["YOLO Ultralytics"]
    for writer in writers:
        writer(tmp_path)
    (tmp_path / "labels/val").rename(tmp_path / "labels/valid")
    with pytest.raises(
        UserError, match=rf"none of 3 images has a file of boxes, such as \S*/labels/val/{name_of(6)}.t"
    ):
        read(module, tmp_path)


# the command line


def test_a_run_tells_the_layout_once(cli: Cli) -> None:
    module, writers, layout = WHOLE["YOLO Label Studio"]
    for writer in writers:
        writer(Path("pets"))
    model = ("--model", "Detection", "--model.num_classes", "2", "--model.net", "YOLO", "--model.net.num_classes", "2")
    data = ("--data", module.__name__, "--data.root", "pets", "--data.image_size", "[32, 32]")
    done = cli("fit", "--config", str(ROOT / "configs/debug/one-batch.yaml"), *model, *data, "--run_dir", "run")
    assert done.code == 0, done.err
    told = f"data: {layout}, 9 train, 2 val (from train) images in pets"
    assert [line for line in (done.out + done.err).splitlines() if line.startswith("data: ")] == [told]
    assert "val/map" in json.loads(Path("run/metrics.json").read_text())["metrics"]


def test_help_says_what_every_option_is(cli: Cli) -> None:
    for module in ("VOCDetection", "COCODetection", "YOLODetection"):
        text = cli("fit", "--data.help", module).out
        options = re.findall(r"^  --data\.(\w+) \S+\s+(\S+)", text, re.MULTILINE)
        assert {"image_size", "val_share", "test_share"} <= {name for name, _ in options}
        assert not [name for name, word in options if word.startswith(("[", "-"))], text
