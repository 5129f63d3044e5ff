"""What a script may write where the system itself refuses nothing."""

import os
import sys
from pathlib import Path

import pytest
import torch

from programs import needs_fork
from torchdoctor.running import sandbox
from torchdoctor.scripts import folder
from torchdoctor.scripts.folder import Copy, ForbiddenError, _watch, confine

pytestmark = needs_fork


def test_python_itself_writes_in_the_folder_alone(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.write_text("before", encoding="utf-8")

    def write() -> None:
        sys.addaudithook(_watch(own))
        (own / "state").write_text("x", encoding="utf-8")
        (own / "state").rename(own / "moved")
        Path(os.devnull).write_text("x", encoding="utf-8")
        for act in (other.unlink, lambda: other.write_text("x", encoding="utf-8"), (tmp_path / "new").mkdir):
            with pytest.raises(ForbiddenError, match="in its own folder alone"):
                act()

    sandbox.call(write, 30)  # a hook of this kind stays for good
    assert [path.name for path in own.iterdir()] == ["moved"]
    assert other.read_text(encoding="utf-8") == "before"


def test_what_is_too_large_is_a_link_and_the_rest_may_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "_BYTES", 100)
    own, scratch = tmp_path / "own", tmp_path / "scratch"
    own.mkdir()
    scratch.mkdir()
    for name, size in (("data", 101), ("first.pt", 60), ("second.pt", 40)):
        (own / name).write_bytes(bytes(size))
    copy = Copy(own, scratch)
    assert [path.name for path in copy.folder.iterdir() if path.is_symlink()] == ["data"]

    def write() -> None:
        confine(scratch)
        for name in ("data", "more"):
            with (copy.folder / name).open("wb") as file:
                file.write(b"new")
        (copy.folder / "data").unlink()
        (copy.folder / "data").symlink_to(own / "data")
        torch.save({}, copy.folder / "data")

    sandbox.call(write, 30)
    assert not (copy.folder / "data").is_symlink()
    assert (own / "data").read_bytes() == bytes(101)
