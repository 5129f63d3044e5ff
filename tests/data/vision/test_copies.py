"""Images of validation and test that are copies of training images are said by every data module."""

from pathlib import Path

import pytest

from playbook.data.copies import copied_files
from tests.data.vision.test_annotations import write_yolo, yolo
from tests.data.vision.test_image_folder import made, write_images
from tests.data.vision.test_masks import made as made_masks
from tests.data.vision.test_masks import write as write_masks


@pytest.fixture(autouse=True)
def compared(equal_pictures: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("playbook.data.base.copied_files", copied_files)


def test_every_data_module_says_copies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """stefyste/RIAWELC#2, tqwei05/PlantSeg#11."""
    write_images(tmp_path / "classes/train", {"cat": 4, "dog": 4})
    write_images(tmp_path / "classes/val", {"cat": 1, "dog": 1})
    made(tmp_path / "classes")
    assert " val files are copies of training files, such as " in capsys.readouterr().err
    write_masks(tmp_path / "masks", "train", 3)
    write_masks(tmp_path / "masks", "val", 2)
    made_masks(tmp_path / "masks")
    assert "warning: 2 of 2 val files are copies of training files" in capsys.readouterr().err
    (tmp_path / "boxes").mkdir()
    yolo(write_yolo(tmp_path / "boxes", ["0 0.5 0.5 0.2 0.2"]))
    assert "warning: 2 of 2 val files are copies of training files" in capsys.readouterr().err
