"""predict for real with boxes: in pixels of the files, under the names of classes, and for COCO's own evaluation."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from playbook import class_colour
from playbook.testing.command import Cli

NET = """
import torch
from torch import nn


class Fixed(nn.Module):
    \"\"\"Finds the same boxes in every image: a quarter of it, all of it, and one that is unlikely.\"\"\"

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, images, targets=None):
        if self.training:
            return {"loss": self.scale**2}
        return [self.boxes(image.shape[2], image.shape[1]) for image in images]

    def boxes(self, width, height):
        corners = [[0, 0, width, height], [width / 4, height / 2, width / 2, height * 3 / 4], [0, 0, 8, 8]]
        return {
            "boxes": torch.tensor(corners, dtype=torch.float32),
            "labels": torch.tensor([0, 1, 1]),
            "scores": torch.tensor([0.5, 0.75, 0.125]),
        }
"""
RECIPE = """
seed_everything: 3
model: {class_path: Detection, init_args: {num_classes: 2, net: {class_path: fixed.Fixed}}}
trainer: {max_epochs: 1, logger: false, enable_progress_bar: false}
checkpoint: {monitor: val/map, mode: max}
"""
COCO = """
data:
  class_path: COCODetection
  init_args: {root: pictures, image_size: [32, 48], batch_size: 2}
"""
SCENES = """
data:
  class_path: DigitScenes
  init_args: {target: boxes, image_size: [32, 48], num_train: 4, num_val: 2, num_test: 3, batch_size: 2}
"""
CATEGORIES = [{"id": 90, "name": "dog"}, {"id": 3, "name": "cat"}]  # numbered by id: cat 0, dog 1
SIZES = {"a.png": (60, 40), "b.jpg": (300, 400), "c.png": (48, 32)}
IDS = {"a.png": 40, "b.jpg": 7, "c.png": 1000000001}
FULL = ("class", "score", "left", "top", "right", "bottom")


def boxes_of(size: tuple[int, int]) -> dict[str, tuple[float, ...]]:
    """What the net finds in a file, by class; written out in the file's own pixels."""
    width, height = size
    return {"cat": (0, 0, width, height), "dog": (width / 4, height / 2, width / 2, height * 3 / 4)}


def write_coco(root: Path) -> None:
    (root / "annotations").mkdir(parents=True)
    for split in ("train", "val", "test"):
        content: dict[str, Any] = {"images": [], "annotations": [], "categories": CATEGORIES}
        (root / split).mkdir()
        for name, size in SIZES.items():
            Image.new("RGB", size, (128, 128, 128)).save(root / split / name)
            content["images"].append({"id": IDS[name], "file_name": name, "width": size[0], "height": size[1]})
            for category, (left, top, right, bottom) in zip((3, 90), boxes_of(size).values(), strict=True):
                sides = [left, top, right - left, bottom - top]
                box = {"id": len(content["annotations"]) + 1, "image_id": IDS[name], "category_id": category}
                content["annotations"].append({**box, "bbox": sides, "area": sides[2] * sides[3], "iscrowd": 0})
        (root / f"annotations/instances_{split}.json").write_text(json.dumps(content))


def train(cli: Cli, folder: Path, data: str, classes: int) -> None:
    (folder / "fixed.py").write_text(NET)
    (folder / "recipe.yaml").write_text(RECIPE + data)
    done = cli("fit", "--config", "recipe.yaml", "--run_dir", "run", "--model.num_classes", str(classes))
    assert done.code == 0, done.err


@pytest.fixture
def folder(cli: Cli, workdir: Path) -> Path:
    """A folder with pictures, their boxes, and a run on them."""
    write_coco(workdir / "pictures")
    train(cli, workdir, COCO, classes=2)
    return workdir


def table(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


def numbers(row: dict[str, str]) -> tuple[float, ...]:
    return tuple(float(row[name]) for name in FULL[1:])


def test_boxes_are_in_pixels_of_the_file(cli: Cli, folder: Path) -> None:
    done = cli("predict", "--ckpt_path", "run")
    assert done.code == 0, done.err
    assert "test/b.jpg  1 dog, 1 cat\n" in done.out
    rows = table(folder / "run/predictions/predictions.csv")
    assert [(row["id"], row["class"]) for row in rows] == [
        (f"test/{name}", kind) for name in SIZES for kind in ("dog", "cat")
    ]
    for row, (name, kind) in zip(rows, [(name, kind) for name in SIZES for kind in ("dog", "cat")], strict=True):
        score = {"dog": 0.75, "cat": 0.5}[kind]
        assert numbers(row) == pytest.approx((score, *boxes_of(SIZES[name])[kind]), rel=1e-5)


@pytest.mark.slow
def test_score_chooses_the_boxes_of_an_answer(cli: Cli, folder: Path) -> None:
    for score, count in (("0.6", 1), ("0.1", 3), ("0.9", 0)):
        done = cli("predict", "--ckpt_path", "run", "--score", score, "--format", "jsonl")
        assert done.code == 0, done.err
        lines = (folder / "run/predictions/predictions.jsonl").read_text().splitlines()
        assert [len(json.loads(line)["boxes"]) for line in lines] == [count] * 3, score
    refused = cli("predict", "--ckpt_path", "run", "--score", "2")
    assert refused.code == 2
    assert "score: expected a number in [0, 1], got 2.0" in refused.err
    assert "--top: Detection.answer takes --score" in cli("predict", "--ckpt_path", "run", "--top", "2").err


def test_results_load_in_pycocotools(cli: Cli, folder: Path) -> None:
    """The net finds all boxes, so their average precision is 1 if ids of images and categories are COCO's."""
    from pycocotools import coco
    from pycocotools.cocoeval import COCOeval

    assert cli("predict", "--ckpt_path", "run").code == 0
    results = folder / "run/predictions/coco-results.json"
    entries = json.loads(results.read_text())
    assert {entry["image_id"] for entry in entries} == set(IDS.values())
    assert {entry["category_id"] for entry in entries} == {3, 90}
    assert len(entries) == 9  # of any score
    truth = coco.COCO(str(folder / "pictures/annotations/instances_test.json"))
    evaluation = COCOeval(truth, truth.loadRes(str(results)), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    assert evaluation.stats[0] == pytest.approx(1)


def test_raw_pictures_need_the_checkpoint_alone(cli: Cli, folder: Path) -> None:
    shutil.move(folder / "pictures/test", folder / "photos")
    shutil.move(folder / "photos/b.jpg", folder / "photos/000000000139.jpg")
    shutil.rmtree(folder / "pictures")
    done = cli("predict", "--ckpt_path", "run/checkpoints/best.ckpt", "--input", "photos", "--output", "out", "--draw")
    assert done.code == 0, done.err
    rows = table(folder / "out/predictions.csv")
    assert [row["id"] for row in rows[::2]] == ["000000000139.jpg", "a.png", "c.png"]
    assert numbers(rows[0])[1:] == pytest.approx(boxes_of(SIZES["b.jpg"])["dog"])
    entries = json.loads((folder / "out/coco-results.json").read_text())
    assert {entry["image_id"] for entry in entries} == {139, "a.png", "c.png"}
    with Image.open(folder / "out/drawn/a.png") as picture:
        factor = round(256 / 60)
        assert picture.size == (60 * factor, 40 * factor)
        left, top, right, bottom = boxes_of(SIZES["a.png"])["dog"]
        assert picture.getpixel((int(left * factor), int((top + bottom) / 2 * factor))) == class_colour(2)
        assert picture.getpixel((int((left + right) / 2 * factor), int(bottom * factor))) == class_colour(2)


def test_scenes_have_names_without_files(cli: Cli, workdir: Path) -> None:
    train(cli, workdir, SCENES, classes=10)
    done = cli("predict", "--ckpt_path", "run")
    assert done.code == 0, done.err
    rows = table(workdir / "run/predictions/predictions.csv")
    assert [row["id"] for row in rows[::2]] == ["test:0", "test:1", "test:2"]
    assert {row["class"] for row in rows} == {"0", "1"}
    assert not (workdir / "run/predictions/coco-results.json").exists()  # no COCO data has given category ids
    Image.fromarray(np.zeros((64, 96), np.uint8)).save("photo.png")
    done = cli("predict", "--ckpt_path", "run", "--input", "photo.png")
    assert done.code == 0, done.err
    [box, _] = table(workdir / "run/predictions/photo.png/predictions.csv")
    assert numbers(box)[1:] == pytest.approx((24, 32, 48, 48))
