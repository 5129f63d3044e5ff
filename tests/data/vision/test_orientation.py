"""Photos turned by their EXIF orientation: which form of them boxes refer to, and what is said."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageOps

from src.data.vision.orientation import settle_forms
from src.data.vision.yolo_detection import YOLODetection
from tests.data.vision.test_annotations import yolo
from tests.data.vision.test_detection import DOG, HEIGHT, WIDTH, coco, picture, samples, white, write_coco

INVERSE = {  # of Pillow, what undoes each orientation
    3: Image.Transpose.ROTATE_180,
    6: Image.Transpose.ROTATE_90,
    8: Image.Transpose.ROTATE_270,
}
SHARES = ((DOG[0] + DOG[2]) / 2 / WIDTH, (DOG[1] + DOG[3]) / 2 / HEIGHT)
LINE = f"1 {SHARES[0]} {SHARES[1]} {(DOG[2] - DOG[0]) / WIDTH} {(DOG[3] - DOG[1]) / HEIGHT}"


def save_turned(file: Path, orientation: int) -> None:
    """A photo that shows DOG at its place when it is upright."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = picture([DOG]).transpose(INVERSE[orientation])
    stored.save(file, exif=exif)
    with Image.open(file) as image:
        assert ImageOps.exif_transpose(image).tobytes() == picture([DOG]).tobytes()


def write_yolo(root: Path, orientation: int) -> None:
    (root / "data.yaml").write_text("names: [cat, dog]\ntrain: images/train\nval: images/val\n")
    for split in ("train", "val"):
        for kind in ("images", "labels"):
            (root / kind / split).mkdir(parents=True)
        for name in "ab":
            save_turned(root / f"images/{split}/{name}.png", orientation)
            (root / f"labels/{split}/{name}.txt").write_text(LINE)


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_boxes_of_yolo_refer_to_the_upright_image(
    tmp_path: Path, orientation: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """ultralytics/yolov5#405, roboflow/supervision#2577: tools draw boxes on the upright photo."""
    write_yolo(tmp_path, orientation)
    for image, target in samples(yolo(tmp_path).val_dataloader()):
        assert image.shape == (3, HEIGHT, WIDTH)
        assert white(image) == list(DOG)
        assert target["boxes"][0].tolist() == pytest.approx(DOG)
    first = f"{tmp_path.as_posix()}/images/train/a.png"
    told = f"data: 4 images are turned by their EXIF orientation, such as {first}: boxes refer to the upright image "
    assert told + "(--data.boxes_refer_to stored for the other form)\n" in capsys.readouterr().err


@pytest.mark.parametrize("orientation", [3, 6])
def test_boxes_may_refer_to_the_stored_image(tmp_path: Path, orientation: int) -> None:
    write_yolo(tmp_path, orientation)
    [(image, target), _] = samples(yolo(tmp_path, boxes_refer_to="stored").val_dataloader())
    height, width = (HEIGHT, WIDTH) if orientation == 3 else (WIDTH, HEIGHT)
    assert image.shape == (3, height, width)
    assert white(image) != list(DOG)
    shares = [x / side for x, side in zip(DOG, (WIDTH, HEIGHT) * 2, strict=True)]
    assert target["boxes"][0].tolist() == pytest.approx(
        [x * s for x, s in zip(shares, (width, height) * 2, strict=True)]
    )


def write_turned_coco(root: Path, orientation: int, size: tuple[int, int], box: Any) -> None:
    for split in ("train", "val"):
        images = [
            {"id": k, "file_name": f"{name}.png", "width": size[0], "height": size[1]} for k, name in enumerate("ab")
        ]
        boxes = [{"id": k, "image_id": k, "category_id": 90, "bbox": box} for k in range(2)]
        write_coco(root, split, images=images, annotations=boxes)
        for name in "ab":
            save_turned(root / split / f"{name}.png", orientation)


UPRIGHT = [DOG[0], DOG[1], DOG[2] - DOG[0], DOG[3] - DOG[1]]
# of DOG in the image that orientation 6 stores, a quarter turn to the left
STORED = [DOG[1], WIDTH - DOG[2], DOG[3] - DOG[1], DOG[2] - DOG[0]]


@pytest.mark.parametrize(
    ("size", "box", "options", "form", "told"),
    [
        ((WIDTH, HEIGHT), UPRIGHT, {}, "upright", "as width and height of 4 say"),
        ((HEIGHT, WIDTH), STORED, {}, "stored", "as width and height of 4 say"),
        (
            (HEIGHT, WIDTH),
            UPRIGHT,
            {"boxes_refer_to": "upright"},
            "upright",
            "of 4, width and height in the annotation",
        ),
        ((WIDTH, HEIGHT), STORED, {"boxes_refer_to": "stored"}, "stored", "of 4, width and height in the annotation"),
    ],
)
def test_width_and_height_of_coco_tell_the_form(
    tmp_path: Path, size: Any, box: Any, options: Any, form: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_turned_coco(tmp_path, 6, size, box)
    for image, target in samples(coco(tmp_path, **options).val_dataloader()):
        assert image.shape[1:] == ((HEIGHT, WIDTH) if form == "upright" else (WIDTH, HEIGHT))
        assert target["boxes"][0].tolist() == white(image)
    err = capsys.readouterr().err
    assert f"4 images are turned by their EXIF orientation, such as {tmp_path.as_posix()}/train/a.png" in err
    assert f"boxes refer to the {form} image" in err
    assert told in err


@pytest.mark.parametrize("has_evidence", [False, True])
def test_half_turns_follow_the_quarter_turns(tmp_path: Path, has_evidence: bool) -> None:
    """The size of an image turned upside down does not tell; that of others does."""
    write_turned_coco(tmp_path, 3, (WIDTH, HEIGHT), UPRIGHT)
    if has_evidence:
        write_coco(
            tmp_path,
            "train",
            images=[{"id": 0, "file_name": "a.png", "width": HEIGHT, "height": WIDTH}],
            annotations=[{"id": 0, "image_id": 0, "category_id": 90, "bbox": STORED}],
        )
        save_turned(tmp_path / "train/a.png", 6)
    [(image, _), _] = samples(coco(tmp_path).val_dataloader())
    assert (white(image) == list(DOG)) != has_evidence


def test_both_forms_in_one_data_set_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_turned_coco(tmp_path, 6, (WIDTH, HEIGHT), UPRIGHT)
    images = [{"id": 0, "file_name": "a.png", "width": HEIGHT, "height": WIDTH}]
    boxes = [{"id": 0, "image_id": 0, "category_id": 90, "bbox": STORED}]
    write_coco(tmp_path, "val", images=images, annotations=boxes)
    save_turned(tmp_path / "val/a.png", 6)
    data = coco(tmp_path)
    for loader in (data.train_dataloader(), data.val_dataloader()):
        for image, target in samples(loader):
            assert target["boxes"][0].tolist() == pytest.approx(white(image))
    assert "by width and height, boxes of 1 refer to the stored image" in capsys.readouterr().err


def test_upright_photos_are_not_mentioned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "val"):
        write_coco(tmp_path, split)
    coco(tmp_path)
    assert "EXIF" not in capsys.readouterr().err
    assert settle_forms({}, None) == ({}, "")


def test_an_unknown_form_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^boxes_refer_to: expected upright or stored, got left$"):
        YOLODetection(boxes_refer_to="left")  # type: ignore[arg-type]  # as from Python
