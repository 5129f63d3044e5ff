"""Boxes beside images: converted, clipped, moved with the image, and what is done about broken ones."""

import json
import pickle
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.datasets import VOCDetection as TorchvisionVOC
from torchvision.transforms import v2

from playbook.data.loader import DataError
from playbook.errors import UserError
from playbook.testing.command import Cli
from src.data.vision.detection import COCODetection, VOCDetection
from src.data.vision.images import read_image
from tests.conftest import PUBLISHED, ROOT, needs

BCCD, COCO_MINI = PUBLISHED / "bccd", PUBLISHED / "coco_mini"
WIDTH, HEIGHT = 60, 40
Pixels = tuple[int, int, int, int]  # first column and row, and the ones after the last
CAT: Pixels = (5, 8, 25, 30)
DOG: Pixels = (30, 2, 58, 20)
Sample = tuple[Tensor, dict[str, Any]]


@pytest.fixture(autouse=True)
def seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")


def picture(boxes: list[Pixels], ground: int = 0) -> Image.Image:
    """White boxes on black."""
    image = np.full((HEIGHT, WIDTH, 3), ground, dtype=np.uint8)
    for left, top, right, bottom in boxes:
        image[top:bottom, left:right] = 255
    return Image.fromarray(image)


def xml(objects: list[tuple[str, Any]], size: tuple[int, int] = (WIDTH, HEIGHT)) -> str:
    """An annotation; corners count from 1, the last pixel included."""
    parts = [f"<size><width>{size[0]}</width><height>{size[1]}</height></size>"]
    for name, corners in objects:
        sides = zip(("xmin", "ymin", "xmax", "ymax"), corners, strict=True)
        box = "".join(f"<{side}>{value}</{side}>" for side, value in sides)
        parts.append(f"<object><name>{name}</name><bndbox>{box}</bndbox></object>")
    return f"<annotation>{''.join(parts)}</annotation>"


def voc_corners(box: Pixels) -> Pixels:
    return box[0] + 1, box[1] + 1, box[2], box[3]


def write_voc(root: Path, class_names: tuple[str, str] = ("dog", "cat")) -> Path:
    """Two images a split: one of a dog and a cat, one without anything."""
    folder = root / "VOCdevkit/VOC2007"
    for name in ("Annotations", "ImageSets/Main", "JPEGImages"):
        (folder / name).mkdir(parents=True)
    for ground, split in enumerate(("train", "val", "test")):  # no two images are alike
        for name, boxes in {f"{split}_full": [DOG, CAT], f"{split}_empty": []}.items():
            picture(boxes, ground).save(folder / f"JPEGImages/{name}.jpg", quality=95)
            objects = [(label, voc_corners(box)) for label, box in zip(class_names, boxes, strict=False)]
            (folder / f"Annotations/{name}.xml").write_text(xml(objects))
        (folder / f"ImageSets/Main/{split}.txt").write_text(f"{split}_full 1\n{split}_empty -1\n\n")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_voc(tmp_path)


def voc(folder: Path, **options: Any) -> VOCDetection:
    data = VOCDetection(str(folder.parent.parent), **{"num_workers": 0, "batch_size": 4, **options})
    data.setup("fit")
    return data


def samples(loader: DataLoader) -> list[Sample]:
    return [pair for images, targets in loader for pair in zip(images, targets, strict=True)]


def warnings_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Lines after the one that tells the layout."""
    layout, *lines = capsys.readouterr().err.splitlines()
    assert layout.startswith("data: ")
    return lines


# what samples are


def test_corners_are_those_of_pixels(folder: Path) -> None:
    data = voc(folder)
    assert data.class_names == ["cat", "dog"]
    for loader in (data.val_dataloader(), data.test_dataloader()):
        (image, target), (_, empty) = samples(loader)
        assert type(image) is type(target["boxes"]) is Tensor
        assert image.dtype == torch.float32
        assert target["boxes"].tolist() == [list(DOG), list(CAT)]
        assert target["labels"].tolist() == [1, 0]
        assert (target["image_id"], empty["image_id"]) == (0, 1)
        assert empty["boxes"].shape == (0, 4)
        assert empty["labels"].shape == (0,)
        assert empty["labels"].dtype == torch.int64
        assert white(image) == pytest.approx([5, 2, 58, 30], abs=0.5)


def white(image: Tensor) -> list[int]:
    """Around all that is bright."""
    rows, columns = ((image.mean(0) > 0.5).any(dim).nonzero()[:, 0] for dim in (1, 0))
    return [int(x) for x in (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)]


def test_small_objects_are_trained_on(folder: Path) -> None:
    data = voc(folder, image_size=[1, 2])
    trained = [len(target["labels"]) for _, target in samples(data.train_dataloader())]
    assert sorted(trained) == [0, 2]


@pytest.mark.parametrize("suffix", [".png", ".JPG", ".jpeg"])
def test_images_of_other_formats_and_names_with_spaces(folder: Path, suffix: str) -> None:
    image = folder / f"JPEGImages/a dog{suffix}"
    picture([DOG, CAT]).save(image, "png" if suffix == ".png" else "jpeg")
    text = (folder / "Annotations/val_full.xml").read_text().replace(f"<width>{WIDTH}<", f"<width>{WIDTH}.0<")
    (folder / "Annotations/a dog.xml").write_text(text)
    (folder / "ImageSets/Main/val.txt").write_text("\ufeffa dog -1\n", encoding="utf-8")
    [(pixels, target)] = samples(voc(folder).val_dataloader())
    assert white(pixels) == [5, 2, 58, 30]
    assert len(target["labels"]) == 2


def test_an_empty_list_is_named(folder: Path) -> None:
    (folder / "ImageSets/Main/train.txt").write_text("")
    with pytest.raises(UserError, match=r"^--data: VOCDetection found no train samples$"):
        voc(folder, class_names=["cat", "dog"]).train_dataloader()
    with pytest.raises(
        UserError, match=r"^--data.root: .*train.txt.*: train has no images, so the classes are unknown"
    ):
        voc(folder)


def test_a_list_in_another_encoding_is_named(folder: Path) -> None:
    (folder / "ImageSets/Main/train.txt").write_bytes(b"train_full\n\xfc\n")
    with pytest.raises(UserError, match=r"^--data: \S*/train.txt: is not text in UTF-8: 'utf-8' codec can't decode"):
        voc(folder)


def test_class_names_may_be_given(folder: Path) -> None:
    data = voc(folder, class_names=["sheep", "dog", "cat"])
    assert data.class_names == ["sheep", "dog", "cat"]
    assert samples(data.val_dataloader())[0][1]["labels"].tolist() == [1, 2]


def test_images_are_resized_with_their_boxes(folder: Path) -> None:
    image, target = samples(voc(folder, image_size=[20, 90]).test_dataloader())[0]
    file = read_image(folder / "JPEGImages/test_full.jpg")
    expected = v2.functional.resize(v2.functional.pil_to_tensor(file), [20, 90], antialias=True)
    torch.testing.assert_close(image, expected / 255)
    assert target["boxes"].tolist() == [[x * f for x, f in zip(box, (1.5, 0.5) * 2, strict=True)] for box in (DOG, CAT)]
    assert target["file_size"] == (WIDTH, HEIGHT)
    assert "file_size" not in samples(voc(folder).test_dataloader())[0][1]


@pytest.mark.parametrize(("channels", "dtype"), [(1, np.uint16), (4, np.uint8), (5, np.uint16)])
def test_images_of_any_channels(folder: Path, channels: int, dtype: Any) -> None:
    for file in (folder / "JPEGImages").iterdir():
        grey = np.asarray(read_image(file).convert("L")).astype(dtype) * (np.iinfo(dtype).max // 255)
        file.unlink()
        stored = np.repeat(grey[None], channels, 0)
        tifffile.imwrite(file.with_suffix(".tif"), stored, photometric="minisblack")
    options = {"flip": True, "crop": True, "zoom_out": 2.0, "colour": 0.3}
    data = voc(folder, channels=channels, image_size=[HEIGHT, WIDTH], **options)
    image, target = samples(data.test_dataloader())[0]
    assert image.shape == (channels, HEIGHT, WIDTH)
    assert white(image) == pytest.approx([5, 2, 58, 30], abs=0.5)
    file = folder / "JPEGImages/test_full.tif"
    fresh = VOCDetection("nowhere", channels=channels, image_size=[HEIGHT, WIDTH])
    for source in (file, file.read_bytes()):
        assert torch.equal(fresh.read(source), image)
    assert fresh.unlabelled(file)[1] == {"file_size": (WIDTH, HEIGHT)}
    for _ in range(8):
        for image, target in samples(data.train_dataloader()):
            assert image.shape == (channels, HEIGHT, WIDTH)
            assert 0 <= image.min() <= image.max() <= 1, "the ground of zooming out and recoloured pixels too"
            assert len(target["boxes"]) == len(target["labels"])


def test_parts_of_objects_are_no_objects(folder: Path) -> None:
    whole = xml([("cat", voc_corners(CAT))])
    part = "<part><name>head</name><bndbox><xmin>6</xmin></bndbox></part></object>"
    (folder / "Annotations/val_full.xml").write_text(whole.replace("</object>", part))
    assert samples(voc(folder).val_dataloader())[0][1]["boxes"].tolist() == [list(CAT)]


def test_there_is_no_test_without_a_list(folder: Path) -> None:
    (folder / "ImageSets/Main/test.txt").unlink()
    data = voc(folder)
    assert data.test_set is None
    with pytest.raises(ValueError, match="VOCDetection found no test data"):
        data.predict_dataloader()


def test_a_test_set_may_lack_its_boxes(folder: Path) -> None:
    for file in (folder / "Annotations").glob("test_*"):
        file.unlink()
    data = voc(folder)
    assert data.test_set is None, "fit shall not end with a test"
    found = samples(data.predict_dataloader())
    assert [target for _, target in found] == [{"image_id": 0}, {"image_id": 1}]
    assert found[0][0].shape == (3, HEIGHT, WIDTH)


# augmentation


def test_without_changes_training_sees_what_evaluation_sees(folder: Path) -> None:
    data: Any = voc(folder, flip=False)
    for index in range(2):
        image, target = data.augment(data.train_set[index])
        expected_image, expected = data.evaluated(data.train_set[index])
        assert type(image) is type(target["boxes"]) is Tensor
        assert torch.equal(image, expected_image)
        assert all(torch.equal(target[name], expected[name]) for name in ("boxes", "labels"))


@pytest.mark.parametrize(
    "options",
    [{}, {"image_size": [80, 90]}, {"flip": False, "crop": True}, {"flip": False, "zoom_out": 3.0}, {"colour": 0.5}],
)
def test_boxes_follow_the_image(folder: Path, options: dict[str, Any]) -> None:
    """One bright box on black: wherever it goes, its box goes along."""
    picture([CAT]).save(folder / "JPEGImages/train_full.jpg", quality=95)
    (folder / "Annotations/train_full.xml").write_text(xml([("cat", voc_corners(CAT))]))
    data: Any = voc(folder, class_names=["cat", "dog"], **options)
    sample = data.train_set[0]
    torch.manual_seed(0)
    found = [data.augment(sample) for _ in range(60)]
    for image, target in found:
        assert target["labels"].tolist() == [0]
        bright = image * 0.3 / image.amax() if "colour" in options else image
        bright = (bright > 0.6 * bright.amax()).float()
        assert target["boxes"][0].tolist() == pytest.approx(white(bright), abs=2)
    assert len({tuple(target["boxes"][0].int().tolist()) for _, target in found}) > 1 or options == {"colour": 0.5}


@pytest.mark.slow
def test_half_of_the_images_are_mirrored(folder: Path) -> None:
    data: Any = voc(folder)
    torch.manual_seed(0)
    lefts = [data.augment(data.train_set[0])[1]["boxes"][0, 0].item() for _ in range(400)]
    assert set(lefts) == {DOG[0], WIDTH - DOG[2]}
    assert 0.4 < lefts.count(DOG[0]) / 400 < 0.6


def test_crops_drop_the_boxes_they_leave_out(folder: Path) -> None:
    data: Any = voc(folder, crop=True, image_size=[HEIGHT, WIDTH])
    torch.manual_seed(0)
    numbers = []
    for _ in range(100):
        _, target = data.augment(data.train_set[0])
        boxes = target["boxes"]
        assert len(boxes) == len(target["labels"])
        assert ((boxes[:, 2:] - boxes[:, :2]) >= 1).all()
        assert boxes.min() >= 0
        assert (boxes.amax(0) <= torch.tensor([WIDTH, HEIGHT, WIDTH, HEIGHT])).all()
        numbers.append(len(boxes))
    assert set(numbers) == {1, 2}


@pytest.mark.parametrize("options", [{}, {"crop": True}, {"zoom_out": 2.0}, {"crop": True, "image_size": [20, 20]}])
def test_images_without_boxes_are_changed_too(folder: Path, options: dict[str, Any]) -> None:
    data: Any = voc(folder, **options)
    for seed in range(20):
        torch.manual_seed(seed)
        _, target = data.augment(data.train_set[1])
        assert target["boxes"].shape == (0, 4)
        assert target["labels"].shape == (0,)


def test_workers_draw_the_same(folder: Path) -> None:
    """Under every way of starting one, which pickles what it is given."""
    options: dict[str, Any] = {"crop": True, "zoom_out": 2.0, "colour": 0.3, "image_size": [20, 20]}
    pickle.dumps((voc(folder).augment, voc(folder).train_set))
    alone = samples(voc(folder, **options).train_dataloader())
    working = samples(voc(folder, num_workers=1, **options).train_dataloader())
    for (image, target), (other_image, other) in zip(alone, working, strict=True):
        assert torch.equal(image, other_image)
        assert torch.equal(target["boxes"], other["boxes"])


# what is broken

BOXES: dict[str, tuple[str, Any, str]] = {
    "a point": ("cat", (50, 33, 50, 33), r"\(cat\): \[50, 33, 50, 33\] has no area"),
    "a line": ("cat", (20, 5, 40, 5), r"\(cat\): \[20, 5, 40, 5\] has no area"),
    "turned round": ("cat", (40, 5, 20, 15), r"\(cat\): \[40, 5, 20, 15\] has no area"),
    "nan": ("cat", ("nan", 5, 20, 15), r"\(cat\): \[nan, 5, 20, 15\]: expected four finite numbers"),
    "infinite": ("cat", (1, 5, 20, "inf"), r"\(cat\): \[0, 4, 20, inf\]: expected four finite numbers"),
    "outside": ("cat", (61, 5, 80, 15), r"\(cat\): \[60, 4, 80, 15\] is outside of the image, 60 × 40 pixels"),
    "unknown": ("dgo", (1, 5, 20, 15), r"\(dgo\): no such class. Nearest: dog"),
    "no number": ("cat", (1, "five", 20, 15), r"\(cat\): expected four numbers"),
}


def break_box(folder: Path, kind: str) -> None:
    objects = [("dog", voc_corners(DOG)), BOXES[kind][:2], ("cat", voc_corners(CAT))]
    (folder / "Annotations/val_full.xml").write_text(xml(objects))


@pytest.mark.parametrize("kind", BOXES)
def test_a_broken_box_is_an_error_that_names_it(folder: Path, kind: str) -> None:
    break_box(folder, kind)
    with pytest.raises(ValueError, match=rf"--data: .*/val_full.xml: box 2 {BOXES[kind][2]}; --data.on_error skip"):
        voc(folder)


@pytest.mark.parametrize("kind", BOXES)
def test_a_broken_box_can_be_left_out_and_is_counted(
    folder: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    break_box(folder, kind)
    data = voc(folder, on_error="skip")
    assert samples(data.val_dataloader())[0][1]["boxes"].tolist() == [list(DOG), list(CAT)]
    data.setup("test")
    assert data.counts == {"left_out_boxes": 1}
    assert not data.skipped_samples
    [line] = warnings_of(capsys)
    assert line.startswith(f"warning: left out {folder.as_posix()}/Annotations/val_full.xml: box 2 ")


def test_an_object_without_a_name_is_of_no_class(folder: Path) -> None:
    (folder / "Annotations/train_full.xml").write_text(
        xml([("dog", voc_corners(DOG)), ("", voc_corners(CAT)), ("cat", voc_corners(CAT))]).replace("<name></name>", "")
    )
    with pytest.raises(UserError, match=r"--data: \S*/train_full.xml: box 2 \(without a name\): no such class; --data"):
        voc(folder)
    data = voc(folder, on_error="skip")
    assert data.class_names == ["cat", "dog"]
    assert data.counts == {"left_out_boxes": 1}


def test_many_broken_boxes_are_only_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "Annotations/train_full.xml").write_text(xml([("cat", (9, 9, 9, 9))] * 25))
    voc(folder, on_error="skip", class_names=["cat", "dog"])
    lines = warnings_of(capsys)
    assert len(lines) == 11
    assert lines[10] == "warning: left out 25 boxes in all"


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_box_that_reaches_out_is_clipped_and_counted(
    folder: Path, on_error: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some tools write 0 for a first pixel."""
    boxes = [("dog", (0, 0, 20, 15)), ("cat", (30, 20, 61, 47)), ("cat", (1, 1, 60, 40))]
    (folder / "Annotations/val_full.xml").write_text(xml(boxes))
    data = voc(folder, on_error=on_error)
    expected = [[0, 0, 20, 15], [29, 19, 60, 40], [0, 0, 60, 40]]
    assert samples(data.val_dataloader())[0][1]["boxes"].tolist() == expected
    assert data.counts == {"clipped_boxes": 2}
    file = (folder / "Annotations/val_full.xml").as_posix()
    assert warnings_of(capsys) == [
        f"warning: clipped {file}: box 1 (dog): [-1, -1, 20, 15] reaches out of the image, 60 × 40 pixels",
        f"warning: clipped {file}: box 2 (cat): [29, 19, 61, 47] reaches out of the image, 60 × 40 pixels",
    ]


def test_many_clipped_boxes_are_only_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "Annotations/val_full.xml").write_text(xml([("cat", (0, 0, 20 + k, 15)) for k in range(25)]))
    assert voc(folder).counts == {"clipped_boxes": 25}
    lines = warnings_of(capsys)
    assert len(lines) == 11
    assert lines[10] == "warning: clipped 25 boxes in all"


@pytest.mark.slow
def test_counts_are_in_the_results_of_a_run(cli: Cli) -> None:
    break_box(write_voc(Path("data")), "a point")
    model = ("--model", "Detection", "--model.num_classes", "2", "--model.net", "YOLO", "--model.net.num_classes", "2")
    data = ("--data", "VOCDetection", "--data.on_error", "skip")
    done = cli("fit", "--config", str(ROOT / "configs/debug/one-batch.yaml"), *model, *data, "--run_dir", "run")
    assert done.code == 0, done.err
    assert json.loads(Path("run/metrics.json").read_text())["left_out_boxes"] == 1


LAUGHS = '<!DOCTYPE a [<!ENTITY b "ha">]><annotation><size><width>&b;</width></size></annotation>'
FILES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "cut off": (lambda file: file.write_text(xml([])[:30]), "unclosed token"),
    "empty": (lambda file: file.write_text(""), "no element found"),
    "entities": (lambda file: file.write_text(LAUGHS), "has a document type, which no annotation needs"),
    "entities in UTF-16": (lambda file: file.write_bytes(LAUGHS.encode("utf-16")), "has a document type"),
    "infinite": (
        lambda file: file.write_text("<annotation><size><width>inf</width><height>9</height></size></annotation>"),
        "cannot convert float infinity to integer",
    ),
    "encoding": (lambda file: file.write_text('<?xml version="1.0" encoding="foo"?><annotation/>'), "unknown encoding"),
    "no size": (lambda file: file.write_text("<annotation/>"), "expected a size with width and height above 0"),
    "missing": (lambda file: file.unlink(), "No such file or directory"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_broken_file_of_boxes_is_an_error_or_a_sample_less(
    folder: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    break_it, message = FILES[kind]
    break_it(folder / "Annotations/val_full.xml")
    with pytest.raises(ValueError, match=rf"--data: \S*/val_full.xml: {message}.*; --data.on_error skip leaves out"):
        voc(folder)
    data = voc(folder, on_error="skip")
    assert [target["image_id"] for _, target in samples(data.val_dataloader())] == [1]
    assert data.skipped_samples == {"val 0"}
    assert message in capsys.readouterr().err


def test_entities_would_have_been_expanded() -> None:
    """So the test above is of something: the plain parser takes them."""
    assert ET.fromstring(LAUGHS).findtext("size/width") == "ha"


IMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "truncated": (lambda file: file.write_bytes(file.read_bytes()[:-200]), r"val_full.jpg\): OSError: .*truncated"),
    "text": (lambda file: file.write_text("no image"), r"val_full.jpg\): OSError: cannot identify image file"),
    "size": (
        lambda file: picture([]).resize((40, 60)).save(file),
        r"val_full.jpg\): is 40 × 60 pixels, 60 × 40 in its annotation",
    ),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_a_broken_image_is_an_error_or_a_sample_less(folder: Path, kind: str) -> None:
    break_it, message = IMAGES[kind]
    break_it(folder / "JPEGImages/val_full.jpg")
    with pytest.raises(DataError, match=rf"--data: val sample 0 \(.*{message}"):
        samples(voc(folder).val_dataloader())
    data = voc(folder, on_error="skip")
    assert [target["image_id"] for _, target in samples(data.val_dataloader())] == [1]
    assert data.skipped_samples == {"val 0"}


def test_a_missing_list_is_named(folder: Path) -> None:
    with pytest.raises(
        ValueError, match=r"^--data.val, --data.root or --data.year: expected .*/Main/trainval.txt, which"
    ):
        voc(folder, val="trainval")
    with pytest.raises(
        ValueError, match=r"^--data.year: expected a folder of images \S*/VOCdevkit/VOC2012; there is VOC2007$"
    ):
        voc(folder, year=2012)
    (folder / "ImageSets/Main/train.txt").unlink()
    with pytest.raises(ValueError, match=r"^--data.train, --data.root or --data.year: expected .*/Main/train.txt, "):
        voc(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": [8]}, r"image_size: expected \[H, W\] of at least 1 pixel each, got \[8\]"),
        ({"image_size": [0, 8]}, r"image_size: expected \[H, W\] of at least 1 pixel each, got \[0, 8\]"),
        ({"zoom_out": 0.5}, "zoom_out: expected at least 1, got 0.5"),
        ({"colour": 1.5}, r"colour: expected a share in \[0, 1\], got 1.5"),
        ({"val_share": 0.0}, r"val_share: expected a share in \(0, 1\), got 0.0"),
        ({"test_share": -0.1}, r"test_share: expected a share in \[0, 0.8\) with val_share 0.2, got -0.1"),
        ({"test_share": 0.8}, r"test_share: expected a share in \[0, 0.8\) with val_share 0.2, got 0.8"),
    ],
)
def test_arguments_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VOCDetection(**options)


def test_class_names_differ() -> None:
    with pytest.raises(ValueError, match=r"class_names: expected different names, got \['dog', 'dog', 'cat'\]"):
        VOCDetection(class_names=["dog", "dog", "cat"])


# COCO

ENDS = {"annotations": ".json", "images": ""}
IMAGE = {"id": 40, "file_name": "a.png", "width": WIDTH, "height": HEIGHT}
CATEGORIES = [{"id": 90, "name": "dog"}, {"id": 3, "name": "cat"}]


def write_coco(root: Path, split: str = "train", **changes: Any) -> None:
    """Image 40 has a dog, a cat and a crowd of cats, image 7 nothing."""
    (root / split).mkdir(exist_ok=True)
    for name, boxes in {"a": [DOG, CAT], "b": []}.items():
        picture(boxes).save(root / split / f"{name}.png")
    sides = [(left, top, right - left, bottom - top) for left, top, right, bottom in (DOG, CAT)]
    content = {
        "images": [
            {"id": 40, "file_name": "a.png", "width": WIDTH, "height": HEIGHT},
            {"id": 7, "file_name": "b.png", "width": WIDTH, "height": HEIGHT},
        ],
        "annotations": [
            {"id": 1, "image_id": 40, "category_id": 90, "bbox": sides[0], "iscrowd": 0},
            {"id": 2, "image_id": 40, "category_id": 3, "bbox": sides[1]},
            {"id": 3, "image_id": 40, "category_id": 3, "bbox": [0, 0, 60, 40], "iscrowd": 1},
        ],
        "categories": CATEGORIES,
        **changes,
    }
    (root / f"{split}.json").write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


def coco(root: Path, **options: Any) -> COCODetection:
    places = {f"{split}_{kind}": split + end for split in ("train", "val") for kind, end in ENDS.items()}
    data = COCODetection(str(root), **{"num_workers": 0, "batch_size": 4, **places, **options})
    data.setup("fit")
    return data


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for split in ("train", "val"):
        write_coco(tmp_path, split)
    return tmp_path


def test_categories_are_numbered_by_their_ids(root: Path) -> None:
    data = coco(root)
    assert data.class_names == ["cat", "dog"]
    (image, target), (_, empty) = samples(data.val_dataloader())
    assert white(image) == [5, 2, 58, 30]
    assert target["boxes"].tolist() == [list(DOG), list(CAT), [0, 0, WIDTH, HEIGHT]]
    assert target["labels"].tolist() == [1, 0, 0]
    assert target["iscrowd"].tolist() == [0, 0, 1], "as COCO's evaluation takes it"
    trained = {target["image_id"]: target for _, target in samples(data.train_dataloader())}
    assert trained[40]["labels"].tolist() == [1, 0], "and the crowd is left out"
    assert "iscrowd" not in trained[40]
    assert (target["image_id"], empty["image_id"]) == (40, 7)
    assert empty["boxes"].shape == (0, 4)
    assert data.test_set is None


def labels(root: Path, names: dict[Any, str], used: list[Any], **options: Any) -> list[int]:
    """Of boxes of val whose categories have these ids, where train has 3 cat and 90 dog."""
    categories = [{"id": category, "name": name} for category, name in names.items()]
    boxes = [{"image_id": 40, "category_id": category, "bbox": [1, 2, 3, 4]} for category in used]
    write_coco(root, "val", categories=categories, annotations=boxes)
    return samples(coco(root, **options).val_dataloader())[0][1]["labels"].tolist()


@pytest.mark.parametrize(
    ("names", "used", "expected"),
    [
        ({3: "dog", 90: "cat"}, [3, 90], [1, 0]),
        ({"a": "dog", "b": "cat"}, ["a", "b"], [1, 0]),
        ({90: "dog"}, [90], [1]),
        ({90: "dog"}, [90, 3], [1, 0]),
        ({}, [90, 3], [1, 0]),
        ({3: "cat", 7: "fox", 90: "dog"}, [90, 3], [1, 0]),
        ({0: "cat", 3: "cat", 90: "dog"}, [90, 3], [1, 0]),
    ],
    ids=["turned round", "text", "fewer", "fewer than used", "none", "more", "named as its group, which has no box"],
)
def test_categories_are_matched_by_name(root: Path, names: dict[Any, str], used: list[Any], expected: Any) -> None:
    assert labels(root, names, used) == expected


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({3: "dgo", 90: "dog"}, r"\(dgo\): no such class. Nearest: dog"),
        ({1: "cat", 90: "dog"}, r"\(category 3\): no such class"),
    ],
    ids=["another name", "another numbering"],
)
def test_a_category_that_train_lacks_is_no_class(root: Path, names: dict[Any, str], message: str) -> None:
    with pytest.raises(UserError, match=rf"--data: \S*/val.json: annotations\[0\] {message}; --data.on_error skip"):
        labels(root, names, [3, 90])
    assert labels(root, names, [3, 90], on_error="skip") == [1]


def test_boxes_of_two_categories_of_one_name_are_an_error(root: Path) -> None:
    message = r"--data: \S*/val.json: annotations\[1\] \(cat\): its category is 3, another of this name is 0"
    with pytest.raises(UserError, match=message):
        labels(root, {0: "cat", 3: "cat"}, [0, 3], on_error="skip")


def test_a_coco_test_set_may_lack_its_boxes(root: Path) -> None:
    write_coco(root, "test", annotations=None)
    data = coco(root, test_annotations="test.json", test_images="test")
    assert [target for _, target in samples(data.predict_dataloader())] == [{"image_id": 40}, {"image_id": 7}]
    write_coco(root, "test")
    data = coco(root, test_annotations="test.json", test_images="test")
    for loader in (data.test_dataloader(), data.predict_dataloader()):
        assert samples(loader)[0][1]["labels"].tolist() == [1, 0, 0]


ENTRIES: dict[str, tuple[dict[str, Any], str]] = {
    "no area": ({"bbox": [5, 5, 0, 9]}, r"annotation 5 \(cat\): \[5, 5, 5, 14\] has no area"),
    "next to no area": ({"bbox": [5, 5, 1e-9, 9]}, r"annotation 5 \(cat\): \[5, 5, 5, 14\] has no area"),
    "next to outside": ({"bbox": [-9, 5, 9 + 1e-6, 9]}, r"annotation 5 \(cat\): \[-9, 5, 1e-06, 14\] is outside of"),
    "outside": ({"bbox": [-9, 5, 8, 9]}, r"annotation 5 \(cat\): \[-9, 5, -1, 14\] is outside of the image, 60 × 40"),
    "category": ({"category_id": 4}, r"annotation 5 \(category 4\): no such class"),
    "image": ({"image_id": 41}, r"annotation 5 \(cat\): there is no image 41"),
    "three numbers": ({"bbox": [1, 2, 3]}, r"annotation 5 \(cat\): expected four numbers"),
    "a text": ({"bbox": "1234"}, r"annotation 5 \(cat\): expected four numbers"),
    "infinite": ({"bbox": [1, 2, float("inf"), 4]}, r"annotation 5 \(cat\): \[1, 2, inf, 6\]: expected four finite"),
    "too large": ({"bbox": [1, 2, 10**400, 4]}, r"annotation 5 \(cat\): expected four numbers"),
    "crowd": ({"iscrowd": "no"}, r"annotation 5 \(cat\): iscrowd: expected 0 or 1, got 'no'"),
    "no category": ({"category_id": ...}, "annotation 5: lacks category_id"),
    "no image": ({"image_id": ...}, "annotation 5: lacks image_id"),
    "categories": ({"category_id": [3]}, r"annotation 5: category_id: expected a number or text, got \[3\]"),
    "words": ({"bbox": [1, 2, 3, "wide"]}, r"annotation 5 \(cat\): expected four numbers"),
    "nothing": ({"bbox": ...}, r"annotation 5 \(cat\): expected four numbers"),
    "null": ({"bbox": None}, r"annotation 5 \(cat\): expected four numbers"),
}


@pytest.mark.parametrize("kind", ENTRIES)
def test_a_broken_annotation_is_an_error_or_a_box_less(
    root: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, message = ENTRIES[kind]
    entry = {"id": 5, "image_id": 7, "category_id": 3, "bbox": [1, 2, 3, 4], **changes}
    entry = {name: value for name, value in entry.items() if value is not ...}
    sound = {"id": 6, "image_id": 7, "category_id": 3, "bbox": [1, 2, 3, 4]}
    write_coco(root, "val", annotations=[entry, sound])
    with pytest.raises(ValueError, match=rf"--data: \S*/val.json: {message}.*; --data.on_error skip leaves out"):
        coco(root)
    data = coco(root, on_error="skip")
    assert samples(data.val_dataloader())[1][1]["boxes"].tolist() == [[1, 2, 4, 6]]
    assert data.counts == {"left_out_boxes": 1}
    assert "val.json: annotation 5" in capsys.readouterr().err


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_box_to_train_with_does_not_vanish_uncounted(root: Path, on_error: Any) -> None:
    entry = {"id": 5, "image_id": 40, "category_id": 3}
    write_coco(root, annotations=[{**entry, "bbox": [5, 5, 1e-6, 9]}, {**entry, "bbox": [5, 5, 9, 9]}])
    if on_error == "stop":
        with pytest.raises(UserError, match=r"train.json: annotation 5 \(cat\): \[5, 5, 5, 14\] has no area"):
            coco(root)
    else:
        assert coco(root, on_error="skip").counts == {"left_out_boxes": 1}


@pytest.mark.parametrize("options", [{}, {"image_size": [2, 48]}, {"image_size": [9, 40_009]}, {"zoom_out": 4.0}])
def test_the_thinnest_boxes_keep_their_area(root: Path, options: dict[str, Any]) -> None:
    """Where float32 is coarsest: in a large image, whatever it is resized to."""
    width = 30_000
    entry = {"image_id": 40, "category_id": 3}
    lefts = np.random.default_rng(0).uniform(0, width - 1, 500)
    boxes = [{**entry, "bbox": [left, 1, width * 2**-18 * 1.001, 2]} for left in lefts]
    for split in ("train", "val"):
        write_coco(root, split, images=[{**IMAGE, "width": width, "height": 4}], annotations=boxes)
        Image.new("RGB", (width, 4)).save(root / split / "a.png")
    data = coco(root, **options)
    for loader in (data.train_dataloader(), data.val_dataloader()):
        [(_, target)] = samples(loader)
        assert len(target["boxes"]) == 500
        assert (target["boxes"][:, :2] < target["boxes"][:, 2:]).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON: Expecting property name"),
        ("[]", "is not in COCO's format: expected a list of categories"),
        ('{"images": [], "annotations": []}', "is not in COCO's format: expected a list of categories"),
        ('{"images": 7, "categories": []}', "is not in COCO's format: expected a list of images"),
        ('{"images": [], "categories": [], "annotations": null}', "expected a list of annotations"),
        ('{"images": [7], "categories": []}', r"images\[0\]: expected an entry of keys and values, got 7"),
        ('{"images": [{"width": 1}], "categories": []}', r"images\[0\]: lacks id"),
        ('{"images": [{"id": [1]}], "categories": []}', r"images\[0\]: id: expected a number or text, got \[1\]"),
        ('{"images": [], "categories": [{"id": 1}]}', r"categories\[0\]: lacks name"),
        (
            '{"images": [], "categories": [], "annotations": [{"caption": "a dog"}]}',
            r"annotations\[0\]: lacks image_id",
        ),
        (
            '{"images": [], "categories": [{"id": 1, "name": "cat"}, {"id": "2", "name": "dog"}]}',
            r"categories\[1\]: expected ids that are all numbers or all text, got 1 and '2'",
        ),
    ],
)
def test_a_file_that_is_no_coco_is_named(root: Path, text: str, message: str) -> None:
    (root / "val.json").write_text(text)
    with pytest.raises(ValueError, match=rf"--data: \S*/val.json: .*{message}"):
        coco(root)


IMAGE_ENTRIES: dict[str, tuple[dict[str, Any], str]] = {
    "text": ({"width": "60"}, "expected width and height above 0, got '60' and 40"),
    "null": ({"height": None}, "expected width and height above 0, got 60 and None"),
    "no width": ({"width": ...}, "expected width and height above 0, got None and 40"),
    "no name": ({"file_name": ...}, "lacks file_name"),
    "a number": ({"file_name": 7}, "file_name: expected text, got 7"),
}


@pytest.mark.parametrize("kind", IMAGE_ENTRIES)
def test_a_broken_image_entry_is_an_error_or_a_sample_less(
    root: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, message = IMAGE_ENTRIES[kind]
    broken = {name: value for name, value in {**IMAGE, **changes}.items() if value is not ...}
    write_coco(root, "val", images=[broken, {**IMAGE, "id": 7, "file_name": "b.png"}])
    with pytest.raises(UserError, match=rf"--data: \S*/val.json: images\[0\]: {message}; --data.on_error skip"):
        coco(root)
    data = coco(root, on_error="skip")
    assert [target["image_id"] for _, target in samples(data.val_dataloader())] == [7]
    assert data.skipped_samples == {"val 0"}
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_ids_are_of_one_entry(root: Path, on_error: Any) -> None:
    write_coco(root, "train", images=[IMAGE, {**IMAGE, "file_name": "b.png"}])
    with pytest.raises(
        UserError, match=r"--data: \S*/train.json: images\[1\]: id 40 is also the id of an earlier image"
    ):
        coco(root, on_error=on_error)
    write_coco(root, "train", categories=[*CATEGORIES, {"id": 3, "name": "fox"}])
    with pytest.raises(UserError, match=r"--data: \S*/train.json: categories\[2\]: id 3 is of cat and of fox"):
        coco(root, on_error=on_error)


def test_a_category_may_stand_twice(root: Path) -> None:
    write_coco(root, "train", categories=[*CATEGORIES, {**CATEGORIES[0], "supercategory": "animal"}])
    assert coco(root).class_names == ["cat", "dog"]


def test_sizes_matter_for_boxes_alone(root: Path) -> None:
    write_coco(root, "test", annotations=None, images=[{"id": 40, "file_name": "a.png", "width": None}])
    data = coco(root, test_annotations="test.json", test_images="test")
    assert [target for _, target in samples(data.predict_dataloader())] == [{"image_id": 40}]


@pytest.mark.parametrize("split", ["train", "val"])
def test_fit_needs_annotations(root: Path, split: str) -> None:
    write_coco(root, split, annotations=None)
    with pytest.raises(UserError, match=rf"--data: \S*/{split}.json: has no annotations; only images to test with"):
        coco(root)
    data = COCODetection(str(root), "train.json", "train", "val.json", "val")
    data.setup("predict")  # which takes neither


@pytest.mark.parametrize(
    ("value", "expected"), [("0", [0, 0, 0]), (None, [0, 0, 0]), ("1", [1, 0, 0]), (True, [1, 0, 0])]
)
def test_crowds_may_be_told_in_text(root: Path, value: Any, expected: list[int]) -> None:
    first, second, third = ({"image_id": 40, "category_id": 3, "bbox": [left, 2, 3, 4]} for left in (1, 5, 9))
    write_coco(root, "val", annotations=[{**first, "iscrowd": value}, second, {**third, "iscrowd": 0}])
    _, target = samples(coco(root).val_dataloader())[0]
    assert target.get("iscrowd", torch.zeros(3)).tolist() == expected


def test_a_file_in_another_encoding_is_named(root: Path) -> None:
    (root / "val.json").write_bytes(b'{"images": "\xff"}')
    with pytest.raises(ValueError, match=r"--data: \S*/val.json: is not valid JSON: 'utf-8' codec"):
        coco(root)


# real ones


@needs("bccd")
def test_bccd_is_torchvisions_but_for_two_boxes(capsys: pytest.CaptureFixture[str]) -> None:
    before = {file: file.stat().st_mtime_ns for file in BCCD.rglob("*")}
    with pytest.raises(ValueError, match=r"BloodImage_00(338|343).xml: box \d+ \(RBC\): .* has no area"):
        voc(BCCD / "VOCdevkit/VOC2007")
    data: Any = voc(BCCD / "VOCdevkit/VOC2007", on_error="skip")
    assert data.class_names == ["Platelets", "RBC", "WBC"]
    assert [len(part) for part in (data.train_set, data.val_set, data.test_set)] == [205, 87, 72]
    boxes = [len(found) for part in (data.train_set, data.val_set, data.test_set) for found in part.boxes]
    assert sum(boxes) == 4888 - 2
    assert len(data.checks.left_out) == 2
    err = capsys.readouterr().err
    assert "BloodImage_00338.xml" in err
    assert "BloodImage_00343.xml" in err
    reference = TorchvisionVOC(BCCD, year="2007", image_set="test")
    for index in range(0, 72, 8):
        image, annotation = reference[index]
        found, target = data.test_set[index]
        torch.testing.assert_close(found, v2.functional.pil_to_tensor(image) / 255)
        objects = annotation["annotation"]["object"]
        corners = [[int(o["bndbox"][side]) for side in ("xmin", "ymin", "xmax", "ymax")] for o in objects]
        expected = torch.tensor(corners) - torch.tensor([1, 1, 0, 0])
        assert torch.equal(target["boxes"], expected.float())
        assert [data.class_names[k] for k in target["labels"]] == [o["name"] for o in objects]
    assert {file: file.stat().st_mtime_ns for file in BCCD.rglob("*")} == before


@needs("coco_mini")
def test_coco_mini_has_the_boxes_of_its_json() -> None:
    data = COCODetection(str(COCO_MINI), num_workers=0, image_size=[64, 64], batch_size=4)
    data.setup("fit")
    assert len(data.class_names) == 80
    assert (data.class_names[0], data.class_names[79]) == ("person", "toothbrush")
    content = json.loads((COCO_MINI / "annotations/instances_val2017.json").read_text())
    names = {category["id"]: category["name"] for category in content["categories"]}
    sizes = {image["id"]: (image["width"], image["height"]) for image in content["images"]}
    found = samples(data.val_dataloader())
    assert len(found) == 19
    num_boxes = 0
    for image, target in found:
        assert image.shape == (3, 64, 64)
        width, height = sizes[target["image_id"]]
        expected = [a for a in content["annotations"] if a["image_id"] == target["image_id"]]
        assert target.get("iscrowd", torch.zeros(len(expected))).tolist() == [a["iscrowd"] for a in expected]
        num_boxes += len(expected)
        assert [data.class_names[k] for k in target["labels"]] == [names[a["category_id"]] for a in expected]
        for box, (x, y, w, h) in zip(target["boxes"].tolist(), (a["bbox"] for a in expected), strict=True):
            corners = [x / width, y / height, (x + w) / width, (y + h) / height]
            assert box == pytest.approx([64 * corner for corner in corners], abs=1e-3)
    assert num_boxes == 168
