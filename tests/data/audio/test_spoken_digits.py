"""The spoken digits: the official split, and speakers that are held out."""

from pathlib import Path
from typing import Any

import pytest

from playbook import UserError
from src.data.audio.spoken_digits import SpokenDigits
from tests.audio import made_up
from tests.conftest import PUBLISHED, needs


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made_up.write(tmp_path)
    return tmp_path / "spoken_digits"


def test_official_split(root: Path) -> None:
    data: Any = SpokenDigits(root.as_posix())
    data.setup("fit")
    sets = {name: data.ids(getattr(data, f"{name}_set")) for name in ("train", "val", "test")}
    assert all(int(Path(name).stem.split("_")[2]) < 5 for name in sets["test"])
    assert not any(int(Path(name).stem.split("_")[2]) < 5 for name in (*sets["train"], *sets["val"]))
    assert data.facts["classes"] == [str(digit) for digit in range(10)]
    assert data.facts["sample_rate"] == 8000
    assert [data.test_set.targets[index] for index in range(3)] == [int(name[0]) for name in sets["test"][:3]]


def test_a_speaker_that_is_held_out(root: Path) -> None:
    data = SpokenDigits(root.as_posix(), held_out="theo")
    data.setup("fit")
    speakers = {
        name: {Path(file).stem.split("_")[1] for file in data.ids(getattr(data, f"{name}_set"))}
        for name in ("train", "val", "test")
    }
    assert speakers["test"] == {"theo"}
    assert "theo" not in speakers["train"] | speakers["val"]
    with pytest.raises(UserError, match=r"--data.held_out: expected one of george, theo, got teo. Nearest: theo"):
        SpokenDigits(root.as_posix(), held_out="teo").setup("fit")


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected .*/recordings/{digit}_{speaker}_{number}.wav, found none; they are"):
        SpokenDigits(tmp_path.as_posix()).setup("fit")


@needs("spoken_digits")
def test_published_files() -> None:
    data: Any = SpokenDigits((PUBLISHED / "spoken_digits").as_posix())
    data.setup("fit")
    assert [len(part) for part in (data.train_set, data.val_set, data.test_set)] == [2430, 270, 300]
    assert data.facts["seconds"] == pytest.approx(2.28275)
    assert sum(data.facts["class_counts"]) == 2430
