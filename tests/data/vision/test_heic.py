"""Photos of phones: read where pillow-heif is installed, else named; files that are left out are counted."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from playbook.deploy.runtime.errors import InputError
from playbook.deploy.runtime.images import read_image as read_exported
from playbook.errors import UserError
from src.data.vision.images import read_image
from tests.data.vision.test_annotations import write_yolo, yolo
from tests.data.vision.test_image_folder import made, write_images
from tests.data.vision.test_masks import made as made_masks
from tests.data.vision.test_masks import write as write_masks

HEAD = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
PLAN = {"channels": 3, "bits": 8, "steps": [], "mean": None, "deviation": None, "pads_to": None}


@pytest.mark.parametrize("as_bytes", [False, True])
def test_without_the_package_the_error_names_it(
    tmp_path: Path, as_bytes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ultralytics/ultralytics#23717; phones also store such files as .jpg."""
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    file = tmp_path / "photo.jpg"
    file.write_bytes(HEAD)
    source: Any = HEAD if as_bytes else file
    name = "the image" if as_bytes else file.as_posix()
    with pytest.raises(UserError) as caught:
        read_image(source)
    assert str(caught.value) == f"{name}: HEIC needs pillow-heif: uv sync --extra heic"
    with pytest.raises(InputError, match="HEIC needs pillow-heif: pip install pillow-heif"):
        read_exported(source, PLAN)


def test_the_package_is_registered_where_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for it that reads any such file as a picture of one colour."""
    file = tmp_path / "photo.heic"
    file.write_bytes(HEAD)
    opened = Image.open

    def register() -> None:
        monkeypatch.setattr(Image, "open", lambda source: Image.new("RGB", (6, 4), (10, 20, 30)))

    monkeypatch.setitem(sys.modules, "pillow_heif", SimpleNamespace(register_heif_opener=register))
    assert read_image(file).size == (6, 4)
    monkeypatch.setattr(Image, "open", opened)
    values = read_exported(file, PLAN).inputs["image"]
    assert values[:, 0, 0].tolist() == [10, 20, 30]


def test_photos_of_phones_are_read(tmp_path: Path) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.register_heif_opener()
    Image.new("RGB", (64, 48), (10, 120, 230)).save(tmp_path / "photo.heic", quality=100)
    pixels = np.asarray(read_image(tmp_path / "photo.heic"))
    assert pixels.shape == (48, 64, 3)
    assert abs(pixels[20, 20].astype(int) - [10, 120, 230]).max() <= 3


def test_other_text_is_no_photo(tmp_path: Path) -> None:
    (tmp_path / "video.jpg").write_bytes(b"\0\0\0\x18ftypisom")
    with pytest.raises(OSError, match="cannot identify image file"):
        read_image(tmp_path / "video.jpg")


def test_files_that_a_folder_of_classes_leaves_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_images(tmp_path / "train", {"cat": 4, "dog": 4})
    write_images(tmp_path / "test", {"cat": 1, "dog": 1})
    for name in ("train/cat/a.mp4", "train/dog/b.mp4", "train/dog/c.raw", "test/cat/d.mp4"):
        (tmp_path / name).write_text("no image")
    data = made(tmp_path, val_share=0.5)
    data.setup("test")
    assert data.counts == {"left_out_files": 4}
    place = tmp_path.as_posix()
    assert capsys.readouterr().err.splitlines() == [
        f"warning: left out 3 files of other formats: 2 .mp4, 1 .raw, such as {place}/train/cat/a.mp4",
        f"warning: left out 1 file of other formats: 1 .mp4, such as {place}/test/cat/d.mp4",
    ]


def test_files_that_folders_of_masks_and_boxes_leave_out(tmp_path: Path) -> None:
    write_masks(tmp_path / "masks", "train", 4)
    (tmp_path / "masks/train/images/a.mp4").write_text("no image")
    assert made_masks(tmp_path / "masks", val_share=0.5).counts == {"left_out_files": 1}
    (tmp_path / "boxes").mkdir()
    write_yolo(tmp_path / "boxes", ["0 0.5 0.5 0.2 0.2"])
    (tmp_path / "boxes/images/train/a.mp4").write_text("no image")
    (tmp_path / "boxes/images/train/labels.cache").write_text("of another tool")
    assert yolo(tmp_path / "boxes").counts == {"left_out_files": 1}
