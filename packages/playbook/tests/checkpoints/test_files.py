"""Renames that lose nothing, for files and folders alike."""

import hashlib
from pathlib import Path

import pytest

from playbook.checkpoints import files
from playbook.checkpoints.files import Hashed, digest, replace


def make(path: Path, kind: str, content: str) -> Path:
    """A file, a folder with a file in it, or nothing."""
    if kind == "folder":
        path.mkdir()
    if kind != "nothing":
        (path / "inside" if kind == "folder" else path).write_text(content)
    return path


def content_of(path: Path) -> str:
    return (path / "inside" if path.is_dir() else path).read_text()


@pytest.mark.parametrize("former", ["file", "folder", "nothing"])
@pytest.mark.parametrize("new", ["file", "folder"])
@pytest.mark.parametrize("swaps", [True, False])
def test_new_takes_the_place_of_the_former(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swaps: bool, new: str, former: str
) -> None:
    if not swaps:  # another system, or a file system that cannot
        monkeypatch.setattr(files, "_swap", lambda *_: False)
    source, target = make(tmp_path / "last.new", new, "new"), make(tmp_path / "last.ckpt", former, "former")
    replace(source, target)
    assert content_of(target) == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["last.ckpt"]


@pytest.mark.parametrize("former", ["file", "folder", "nothing"])
@pytest.mark.parametrize("new", ["file", "folder"])
@pytest.mark.parametrize("swaps", [True, False])
def test_former_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swaps: bool, new: str, former: str) -> None:
    if not swaps:
        monkeypatch.setattr(files, "_swap", lambda *_: False)
    last, previous = tmp_path / "last.ckpt", tmp_path / "previous.ckpt"
    for content in ("1", "2", "3"):
        make(last.with_suffix(".new"), new if content != "2" else former, content)
        if last.with_suffix(".new").exists():
            replace(last.with_suffix(".new"), last, previous)
    assert (content_of(last), content_of(previous)) == ("3", "1" if former == "nothing" else "2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last.ckpt", "previous.ckpt"]


@pytest.mark.parametrize("num_done", [0, 1])
def test_kill_between_the_steps_where_names_cannot_be_swapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_done: int
) -> None:
    source, target = make(tmp_path / "last.new", "folder", "new"), make(tmp_path / "last.ckpt", "folder", "former")
    renames, done = Path.rename, []

    def rename(path: Path, to: Path) -> Path:
        if len(done) == num_done:
            raise KeyboardInterrupt
        done.append(path)
        return renames(path, to)

    monkeypatch.setattr(files, "_swap", lambda *_: False)
    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        replace(source, target)
    assert content_of(source) == "new"
    assert target.exists() == (num_done == 0)


def test_checksum_of_what_was_given(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        hashed = Hashed(file)
        for part in (b"abc", bytes(3_000_000), b"d"):
            hashed.write(part)
        hashed.flush()
        assert digest(tmp_path / "x") == hashed.sum.hexdigest()
    assert digest(tmp_path / "x", 2, b"xyz") == hashlib.sha256(b"abxyz").hexdigest()
