"""predict for real with masks: files with a palette and the size of the picture, and the areas of classes."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from playbook.command.main import run as run_command
from playbook.runs.colours import palette
from playbook.testing.command import Cli

RECIPE = """
seed_everything: 3
model:
  class_path: Segmentation
  init_args: {num_classes: 3, net: {class_path: UNet, init_args: {num_classes: 3, widths: [4, 8]}}}
data:
  class_path: MaskFolder
  init_args: {root: pictures, num_classes: 3, class_names: [ground, leaf, berry], image_size: [16, 24], batch_size: 4}
checkpoint: {monitor: val/miou, mode: max}
trainer: {max_epochs: 1, logger: false, enable_progress_bar: false}
"""
SIZES = [(50, 40), (31, 64), (24, 16)]  # width and height of the test pictures


def write_pairs(folder: Path, sizes: list[tuple[int, int]]) -> None:
    generator = np.random.default_rng(0)
    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True)
    for i, (width, height) in enumerate(sizes):
        mask = np.zeros((height, width), np.uint8)
        mask[height // 2 :, : width // 2] = 1
        mask[: height // 3, width // 2 :] = 2
        colours = np.array([(90, 90, 90), (20, 190, 40), (210, 30, 20)])[mask]
        pixels = generator.normal(colours, 30).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{i}.jpg")
        Image.fromarray(mask).save(folder / "masks" / f"{i}.png")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pictures and a run of one epoch on them."""
    folder = tmp_path_factory.mktemp("trained")
    write_pairs(folder / "pictures/train", [(24, 16)] * 10)
    write_pairs(folder / "pictures/test", SIZES)
    (folder / "recipe.yaml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run_command(["fit", "--config", "recipe.yaml", "--run_dir", "run"], "src") == 0
    return folder


@pytest.fixture
def folder(trained: Path, workdir: Path) -> Path:
    """A copy of it to work in."""
    return shutil.copytree(trained, workdir, dirs_exist_ok=True)


def table(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


def test_masks_have_a_palette_and_the_size_of_their_pictures(cli: Cli, folder: Path) -> None:
    done = cli("predict", "--ckpt_path", "run")
    assert done.code == 0, done.err
    output = folder / "run/predictions"
    rows = table(output / "predictions.csv")
    assert [row["id"] for row in rows] == [f"test/images/{i}.jpg" for i in range(3)]
    for row, size in zip(rows, SIZES, strict=True):
        with Image.open(output / row["mask"]) as mask:
            assert (mask.mode, mask.size) == ("P", size)
            assert mask.getpalette() == palette()
            numbers = np.asarray(mask)
        shares = [float(row[f"area_{name}"]) for name in ("ground", "leaf", "berry")]
        assert shares == pytest.approx((np.bincount(numbers.ravel(), minlength=3) / numbers.size).tolist())


def test_raw_pictures_have_the_masks_of_the_test_data(cli: Cli, folder: Path) -> None:
    """With the checkpoint alone, without the folder that it was trained on."""
    assert cli("predict", "--ckpt_path", "run").code == 0
    shutil.move(folder / "pictures/test/images", folder / "photos")
    shutil.rmtree(folder / "pictures")
    done = cli("predict", "--ckpt_path", "run/checkpoints/best.ckpt", "--input", "photos", "--output", "out", "--draw")
    assert done.code == 0, done.err
    known = table(folder / "run/predictions/predictions.csv")
    for row, same in zip(table(folder / "out/predictions.csv"), known, strict=True):
        assert f"test/images/{row['id']}" == same["id"]
        assert row["mask"] == f"mask/{Path(row['id']).stem}.png"
        mask, same_mask = Image.open("out/" + row["mask"]), Image.open("run/predictions/" + same["mask"])
        assert np.array_equal(np.asarray(mask), np.asarray(same_mask))
    for i, (width, height) in enumerate(SIZES):
        factor = round(256 / max(width, height))
        with Image.open(folder / f"out/drawn/{i}.jpg") as picture:
            assert picture.size == (width * factor, height * factor)


def test_tiles_cover_a_larger_picture(cli: Cli, folder: Path) -> None:
    write_pairs(folder / "large", [(150, 100)])
    command = ("predict", "--ckpt_path", "run", "--input", "large/images/0.jpg", "--format", "jsonl")
    done = cli(*command, "--tile", "64")
    assert done.code == 0, done.err
    output = folder / "run/predictions/0.jpg"
    [row] = [json.loads(line) for line in (output / "predictions.jsonl").read_text().splitlines()]
    with Image.open(output / row["mask"]) as mask:
        assert mask.size == (150, 100)
    small = cli(*command, "--tile", "63")
    assert (small.code, small.err) == (2, "error: --tile: expected at least 64 pixels, got 63\n")
