"""Reports of segmentation and detection from the command line."""

import pytest

from playbook.testing.command import Cli
from tests.conftest import ROOT
from tests.tasks.reports import noted_by_fit

CONFIGS = ROOT / "configs/vision"
SCENES = ("--data.num_train", "16", "--data.num_val", "4", "--data.num_test", "6", "--data.batch_size", "4")


@pytest.mark.slow
def test_masks_are_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    titles = ["Mean IoU of single images", "Classes, over all pixels", "Scores of single images"]
    options = ("--config", str(CONFIGS / "unet-scenes.yaml"), "--model.net.widths", "[4,8]", *SCENES)
    noted = noted_by_fit(cli, monkeypatch, titles, *options)
    first, lowest = noted["examples"]
    assert [first["kind"], lowest["kind"], lowest["title"]] == ["Gallery", "Gallery", "Lowest IoU"]
    assert [text.partition(":")[0] for _, text in first["pictures"]] == ["test"] * 6
    assert all("; on the right, the target: ground " in text for _, text in first["pictures"])


@pytest.mark.slow
def test_boxes_are_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pycocotools")
    titles = ["F1 of single images", "Precision and recall at IoU 0.5", "Classes, at IoU 0.5 and score 0.25"]
    noted = noted_by_fit(cli, monkeypatch, titles, "--config", str(CONFIGS / "yolo-n-scenes.yaml"), *SCENES)
    assert [block["title"] for block in noted["examples"]] == ["First test samples", "Most missed and false boxes"]
    assert {len(block["pictures"]) for block in noted["examples"]} == {6}
    assert all("; on the right, the target: " in text for block in noted["examples"] for _, text in block["pictures"])
