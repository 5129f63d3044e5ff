"""Files that are left out because of their suffix: counted and named."""

from pathlib import Path

import pytest

from playbook.data.files import name_others
from playbook.data.sources import find_sources
from playbook.errors import UserError


def write(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("content")
    return folder


def test_other_files_are_counted_by_suffix(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", "1.png", "2.heic", "3.HEIC", "4.mp4", ".hidden.mp4", "Thumbs.db", "notes")
    count, text = name_others([folder], (".png",), unmentioned=("",))
    assert count == 3
    first = (folder / "2.heic").as_posix()
    assert text == f"3 files of other formats: 2 .heic, 1 .mp4, such as {first}; uv sync --extra heic reads .heic"
    assert name_others([folder], (".png", ".heic", ".mp4"))[1] == (
        f"1 file of other formats: 1 without suffix, such as {(folder / 'notes').as_posix()}"
    )
    assert name_others([folder], ()) == (0, "")
    assert name_others([write(tmp_path / "b", "1.png")], (".png",)) == (0, "")
    many = write(tmp_path / "c", *(f"1.{letter}" for letter in "abcdefg"))
    assert "1 .e and 2 more kinds, such as" in name_others([many], (".png",))[1]


def test_a_folder_of_inputs_says_what_it_leaves_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "photos", "1.png", "2.mp4")
    assert list(find_sources(str(folder), (".png",)).names) == ["1.png"]
    told = f"left out 1 file of other formats: 1 .mp4, such as {(folder / '2.mp4').as_posix()}"
    assert capsys.readouterr().err == f"warning: --input {folder}: {told}\n"
    (folder / "1.png").unlink()
    with pytest.raises(UserError, match=r"contains no files of .png, but 1 file of other formats: 1 .mp4, such as "):
        find_sources(str(folder), (".png",))
