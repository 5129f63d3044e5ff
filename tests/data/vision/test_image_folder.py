"""Folders of images: against torchvision's ImageFolder, and with the files that people have in them."""

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import datasets, transforms
from torchvision.transforms import v2

from playbook.errors import UserError
from playbook.testing.command import Cli
from src.data.vision.image_folder import ImageFolder, files_by_class

RECIPE = """
model:
  class_path: Classification
  init_args: {num_classes: 3, net: {class_path: CNN, init_args: {num_classes: 3, in_channels: 3}}}
data: {class_path: ImageFolder, init_args: {image_size: 8}}
trainer: {max_epochs: 1}
"""
FIT = ("fit", "--config", "recipe.yaml")


def write_images(root: Path, counts: dict[str, int], suffix: str = "png", size: tuple[int, int] = (20, 16)) -> None:
    generator = np.random.default_rng(0)
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            pixels = generator.integers(0, 256, (*size[::-1], 3)).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i:03}.{suffix}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for split, count in (("train", 12), ("test", 4)):
        write_images(tmp_path / "pictures" / split, {"cat": count, "dog": count, "owl": count})
    return tmp_path / "pictures"


def made(root: Path, **options: Any) -> ImageFolder:
    settings: dict[str, Any] = {"image_size": 14, "batch_size": 5} | options
    data = ImageFolder(str(root), **settings)
    data.setup("fit")
    return data


def test_evaluation_is_what_torchvision_does(root: Path) -> None:
    change = transforms.Compose(
        [
            transforms.Resize(16),
            transforms.CenterCrop(14),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )
    theirs = datasets.ImageFolder(root / "test", change)
    images, targets = zip(*made(root).test_dataloader(), strict=True)
    assert torch.cat(targets).tolist() == theirs.targets
    torch.testing.assert_close(torch.cat(images), torch.stack([image for image, _ in theirs]), rtol=0, atol=1e-6)


def test_validation_is_cut_from_training(root: Path) -> None:
    data = made(root, val_share=0.25)
    train, val = (set(part.indices) for part in (data.train_set, data.val_set))  # type: ignore[attr-defined]
    assert len(train) == 27
    assert train | val == set(range(36))
    assert not train & val
    assert made(root, val_share=0.25).val_set.indices == data.val_set.indices  # type: ignore[attr-defined]


def test_classes_are_counted_after_the_split_and_can_be_balanced(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_images(tmp_path / split, {"cat": 30, "dog": 6, "owl": 4})
    data = made(tmp_path, val_share=0.2, balanced=True)
    counts = data.facts["class_counts"]
    assert sum(counts) == 32
    targets = [data.train_set[i][1] for i in range(32)]
    assert counts == [targets.count(k) for k in range(3)]
    drawn = torch.cat([target for _, target in data.train_dataloader()])
    assert sorted(drawn.bincount().tolist()) == [10, 11, 11]
    write_images(tmp_path / "val", {"cat": 1, "dog": 1})
    assert made(tmp_path).facts["class_counts"] == [30, 6, 4]


@pytest.mark.parametrize("name", ["val", "valid", "validation"])
def test_folder_of_validation(root: Path, name: str) -> None:
    write_images(root / name, {"dog": 3, "owl": 2})
    data = made(root)
    assert (len(data.train_set), len(data.val_set), len(data.test_set)) == (36, 5, 12)  # type: ignore[arg-type]
    assert [target for _, target in data.val_set] == [1, 1, 1, 2, 2]


def test_training_images_change_and_evaluated_ones_do_not(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "3")
    data = made(root, rand_augment=2)
    first, second = ([image for image, _ in data.train_dataloader()] for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True)), "a function of seed, epoch and index"
    monkeypatch.setenv("PL_GLOBAL_SEED", "4")
    other = [image for image, _ in data.train_dataloader()]
    assert not torch.equal(torch.cat(first), torch.cat(other))
    random.seed(1)
    evaluated = torch.cat([image for image, _ in data.val_dataloader()])
    assert torch.equal(evaluated, torch.cat([image for image, _ in data.val_dataloader()]))


@pytest.mark.parametrize("size", [(1, 9000), (301, 3), (3, 300), (40, 5), (5, 41)])
def test_of_a_long_image_only_the_middle_is_scaled(root: Path, size: tuple[int, int]) -> None:
    write_images(root / "val", {"cat": 1}, size=size)
    data = made(root)
    found, _ = data.val_set[0]
    _, *changes = data.evaluated.transforms
    with Image.open(root / "val/cat/000.png") as image:
        expected = v2.Compose(changes)(image)
        assert max(data.evaluated.transforms[0](image).size) <= 8 * min(size) + 1
    torch.testing.assert_close(found, expected, rtol=0, atol=2 / 255 / 0.22)


def test_other_kinds_of_images(tmp_path: Path) -> None:
    folder = tmp_path / "train/a"
    folder.mkdir(parents=True)
    pixels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    grey = Image.fromarray(pixels)
    for i, mode in enumerate(("1", "L", "P", "LA", "RGBA", "CMYK")):
        grey.convert("RGB").convert(mode).save(folder / f"{i}-{mode}.{'tiff' if mode == 'CMYK' else 'png'}")
    (folder / "deeper").mkdir()
    grey.save(folder / "deeper/7.JPG")
    (folder / "notes.txt").write_text("no image")
    (folder / "._8.png").write_bytes(b"what a file manager leaves")
    for options, channels in (({}, 3), ({"grey": True}, 1)):
        data = made(tmp_path, crop=1.0, flip=False, val_share=0.2, **options)
        images = torch.cat(
            [image for loader in (data.train_dataloader(), data.val_dataloader()) for image, _ in loader]
        )
        assert images.shape == (7, channels, 14, 14)


def test_no_test_folder_is_a_training_without_a_test(cli: Cli, root: Path) -> None:
    for file in (root / "test").rglob("*.png"):
        file.unlink()
    for folder in sorted((root / "test").rglob("*"), reverse=True):
        folder.rmdir()
    (root / "test").rmdir()
    Path("recipe.yaml").write_text(RECIPE)
    done = cli(*FIT, "--data.root", str(root), "--run_dir", "run")
    assert done.code == 0, done.err
    assert "test " not in done.out.partition("Results")[2].partition("\n")[0]
    tested = cli("test", "--ckpt_path", "run")
    assert tested.code == 2
    assert re.fullmatch(r"error: --data: ImageFolder found no test data in .*/pictures\n", tested.err)


def test_broken_image_is_named_and_can_be_left_out(cli: Cli, root: Path) -> None:
    broken = root / "train/dog/003.png"
    broken.write_bytes(broken.read_bytes()[:300])
    Path("recipe.yaml").write_text(RECIPE)
    done = cli(*FIT, "--data.root", str(root), "--run_dir", "stopped")
    assert done.code == 2
    assert str(broken) in done.err
    done = cli(*FIT, "--data.root", str(root), "--run_dir", "skipped", "--data.on_error", "skip")
    assert done.code == 0, done.err
    assert f"({broken})" in done.err
    assert '"skipped_samples": 1' in Path("skipped/metrics.json").read_text()


def test_folders_that_cannot_be_used(tmp_path: Path, root: Path) -> None:
    with pytest.raises(UserError, match=r"expected folders of images in .*/train, which does not exist"):
        made(tmp_path)
    with pytest.raises(UserError, match=rf"which does not exist; use --data.root {root.as_posix()}$"):
        made(root / "train")
    (tmp_path / "train/cat").mkdir(parents=True)
    with pytest.raises(UserError, match=r"expected .*/train/CLASS/…, images of .*found none"):
        made(tmp_path)
    write_images(root / "val", {"dig": 1})
    with pytest.raises(
        UserError,
        match=r"val/dig: training had no class of that name, but cat, dog, owl. Nearest: dog; --data.on_error skip",
    ):
        made(root)
    write_images(root / "val", {"dog": 2})
    data = made(root, on_error="skip")
    assert data.skipped_samples == {(root / "val/dig/000.png").as_posix()}
    assert len(data.val_set) == 2  # type: ignore[arg-type]


def test_a_class_without_images_is_not_lost(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in (root / "train/dog").iterdir():
        file.rename(file.with_suffix(".raw"))
    with pytest.raises(UserError, match=r"^--data.root: \S*train/dog: holds 000.raw, expected images of .avif, .*skip"):
        made(root)
    (root / "test/dog/000.png").rename(root / "test/dog/000.raw")  # has others
    (root / "train/ant").mkdir()
    (root / "train/ant/.DS_Store").touch()
    data = made(root, on_error="skip")
    data.setup("test")
    assert data.counts == {"left_out_classes": 2, "left_out_files": 1}
    assert [target for _, target in data.test_set] == [0] * 4 + [1] * 4  # type: ignore[union-attr]
    told = capsys.readouterr().err.splitlines()
    assert [line.partition("train/")[2][:11] for line in told if "the class" in line] == ["ant: is emp", "dog: holds "]


def test_an_empty_folder_is_no_class(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "train/ant").mkdir()
    (root / "test/bee").mkdir()
    assert [target for _, target in made(root).test_set] == [0] * 4 + [1] * 4 + [2] * 4  # type: ignore[union-attr]
    assert capsys.readouterr().err == f"warning: left out the class {root.as_posix()}/train/ant: is empty\n"


def test_too_few_images_to_validate_with(tmp_path: Path) -> None:
    write_images(tmp_path / "train", {"cat": 2, "dog": 2})
    with pytest.raises(UserError, match=r"^--data.val_share: 0.1 of 4 images in \S*/train leaves none for val$"):
        made(tmp_path).val_dataloader()


def test_hidden_folders_are_no_classes(root: Path) -> None:
    write_images(root / "train", {".ipynb_checkpoints": 1})
    assert list(files_by_class(root / "train")) == ["cat", "dog", "owl"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 0}, "image_size: expected at least 1 pixel, got 0"),
        ({"crop": 0.0}, r"crop: expected a share in \(0, 1\], got 0.0"),
        ({"rand_augment": -1}, "rand_augment: expected at least 0 changes, got -1"),
        ({"val_share": 0.0}, r"val_share: expected a share in \(0, 1\), got 0.0"),
        ({"grey": True, "mean": [0.1, 0.2, 0.3]}, r"mean: expected 1 values, one a channel, got \[0.1, 0.2, 0.3\]"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImageFolder("nowhere", **options)
