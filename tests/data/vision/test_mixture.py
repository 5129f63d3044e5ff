"""Mixtures: the share of each part, no sample twice before all came, exact resuming, and parts that do not fit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from playbook import Data, UserError
from src.data.mixture import Mixture
from src.data.vision.image_folder import ImageFolder


@pytest.fixture(autouse=True)
def seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")


def ready(data: Data) -> Any:
    data.setup("fit")
    return data


def folders(root: Path, classes: tuple[str, ...] = ("x", "y"), count: int = 3) -> str:
    for split in ("train", "val"):
        for name in classes:
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                Image.fromarray(np.full((8, 8, 3), 20 * number, np.uint8)).save(root / split / name / f"{number}.png")
    return str(root)


def test_image_folders_mix_if_classes_and_sizes_agree(tmp_path: Path) -> None:
    one, two = folders(tmp_path / "zero"), folders(tmp_path / "two", count=5)
    data = ready(Mixture({"zero": ImageFolder(one, image_size=8), "two": ImageFolder(two, image_size=8)}, batch_size=4))
    assert data.facts["class_counts"] == [8, 8]
    assert data.ids(data.val_set)[6] == "two/val/x/0.png"
    assert next(iter(data.train_dataloader()))[0].shape == (4, 3, 8, 8)
    with pytest.raises(UserError, match=r"two: has the image_shape \[3, 6, 6\], earlier parts \[3, 8, 8\]"):
        ready(Mixture({"zero": ImageFolder(one, image_size=8), "two": ImageFolder(two, image_size=6)}))
    other = folders(tmp_path / "other", ("x", "z"))
    with pytest.raises(UserError, match=r"--data.parts.two.root: .*/train/z: training had no class of that name"):
        ready(Mixture({"zero": ImageFolder(one, image_size=8), "two": ImageFolder(other, image_size=8)}))
