"""Copies of training samples in validation and test."""

from pathlib import Path

import pytest

from playbook.data import copies
from playbook.data.base import Data
from playbook.data.copies import copied_files, copies_in


def write(folder: Path, **contents: str) -> list[Path]:
    folder.mkdir()
    files = [folder / name for name in contents]
    for file in files:
        file.write_text(contents[file.name])
    return files


def test_rows_that_are_also_trained_on() -> None:
    assert copies_in({"train": ["a", "b", "b"], "val": ["c"], "test": ["b", "c", "a", "b"]}) == {"test": [0, 2, 3]}
    assert copies_in({}) == {}


def test_files_are_compared_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = write(tmp_path / "train", a="one", b="two", c="three")
    val = write(tmp_path / "val", d="six", e="three")
    test = [*write(tmp_path / "test", f="seven"), tmp_path / "missing", train[0]]
    splits = {"train": train, "val": val, "test": test}
    assert copied_files(splits) == {"val": [1], "test": [2]}
    monkeypatch.setattr(copies, "MOST_BYTES", 5)
    assert copied_files(splits) == {}
    monkeypatch.setattr(copies, "MOST_FILES", 3)
    assert copied_files(splits) == {}


def test_copies_are_said_once_for_a_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """huggingface/datasets#4261."""
    train, test = write(tmp_path / "train", a="one", b="two"), write(tmp_path / "test", c="two", d="six")
    data = Data()
    data.tell_copies({"train": train, "val": train[:0], "test": test})
    data.tell_copies({"train": ["x"], "test": ["x", "x", "y"]}, "rows")
    named = f"copies of training files, such as {test[0].as_posix()}"
    assert capsys.readouterr().err.splitlines() == [
        f"warning: 1 of 2 test files are {named}; scores of test will be too good",
        "warning: 2 of 3 test rows are copies of training rows; scores of test will be too good",
    ]
