"""An archive of images: what it holds, what is kept of it, and what can be wrong with it."""

import io
import lzma
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from playbook.data.loader import DataError
from playbook.errors import UserError
from src.data.vision.image_archive import ImageArchive


def picture(i: int, size: tuple[int, int] = (9, 7), mode: str = "RGB") -> bytes:
    pixels = np.random.default_rng(i).integers(0, 256, (*size[::-1], 3)).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, "png")
    return stream.getvalue()


def archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:xz") as file:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    return path


def usual(mode: str = "RGB", size: tuple[int, int] = (9, 7)) -> dict[str, bytes]:
    files = {f"./set/{split}/{kind}/{i}.png": picture(i, size, mode)
             for split in ("train", "test") for kind in ("b", "a") for i in range(5)}  # fmt: skip
    return {**files, "./set/README.md": b"words", "./set/train/labels.png": picture(9)}


def made(path: Path, cache: Path, **options: Any) -> ImageArchive:
    data = ImageArchive(str(path), cache=str(cache), **options)
    data.prepare_data()
    data.setup("fit")
    return data


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1)])
def test_images_and_classes(tmp_path: Path, mode: str, channels: int) -> None:
    data = made(archive(tmp_path / "set.tar.xz", usual(mode)), tmp_path / "cache", val_share=0.2)
    assert (len(data.train_set), len(data.val_set)) == (8, 2)  # type: ignore[arg-type]
    test: Any = data.test_set
    assert test.images.shape == (10, channels, 7, 9)
    assert test.targets.tolist() == [0] * 5 + [1] * 5
    with Image.open(io.BytesIO(picture(3, mode=mode))) as file:
        expected = torch.from_numpy(np.array(file)).view(7, 9, channels).permute(2, 0, 1)
    assert torch.equal(test.images[3], expected)


def test_decodes_once_until_the_archive_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path, decoded = archive(tmp_path / "set.tar.xz", usual()), []
    original = ImageArchive._decode
    monkeypatch.setattr(ImageArchive, "_decode", lambda self: decoded.append(1) or original(self))
    for _ in range(2):
        data = ImageArchive(str(path))
        data.prepare_data()
        data.setup("fit")
    assert len(decoded) == 1
    assert [file.suffix for file in (tmp_path / "cache/playbook").iterdir()] == [".npz"]
    archive(path, {name: content for name, content in usual().items() if "/4.png" not in name})
    data = ImageArchive(str(path))
    data.prepare_data()
    data.setup("fit")
    assert len(decoded) == 2
    assert len(data.test_set) == 8  # type: ignore[arg-type]


def test_broken_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = archive(tmp_path / "set.tar.xz", usual() | {"set/train/a/7.png": picture(7)[:90], "set/train/a/8.jpg": b""})
    with pytest.raises(DataError, match=r"--data.root .*set.tar.xz: set/train/a/7.png: "):
        made(path, tmp_path / "cache")
    for _ in range(2):
        data = made(path, tmp_path / "cache", on_error="skip", val_share=0.2)
        assert data.skipped_samples == {"set/train/a/7.png", "set/train/a/8.jpg"}
        assert len(data.train_set) == 8  # type: ignore[arg-type]
    assert capsys.readouterr().err.count("warning: skipped set/train/a/7.png") == 1


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"set/test/c/1.png": picture(1)}, "test has a class c, which train does not have"),
        (
            {"set/test/a/9.png": picture(1, (8, 8))},
            "a/9.png: expected 9×7 pixels as the first image has, got 8×8",
        ),
    ],
)
def test_images_that_do_not_go_together(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    with pytest.raises(UserError, match=message):
        made(archive(tmp_path / "set.tar.xz", usual() | files), tmp_path / "cache")


@pytest.mark.parametrize(
    "files", [{"set/test/c/1.png": picture(1)}, {"set/test/a/9.png": picture(1, (8, 8))}], ids=["class", "size"]
)
def test_images_that_do_not_go_together_can_be_left_out(tmp_path: Path, files: dict[str, bytes]) -> None:
    data = made(archive(tmp_path / "set.tar.xz", usual() | files), tmp_path / "cache", on_error="skip")
    assert data.skipped_samples == set(files)
    assert len(data.test_set) == 10  # type: ignore[arg-type]


def test_a_damaged_header_is_not_the_end(tmp_path: Path) -> None:
    archive(tmp_path / "set.tar.xz", usual())
    whole = bytearray(lzma.decompress((tmp_path / "set.tar.xz").read_bytes()))
    place = whole.index(b"./set/train/a/2.png")
    whole[place + 3] ^= 1  # the header's checksum fails
    (tmp_path / "set.tar").write_bytes(whole)
    with pytest.raises(UserError, match=rf"set.tar: cannot be read: damaged at byte {place}: bad checksum"):
        made(tmp_path / "set.tar", tmp_path / "cache")


def test_damage_at_the_end_of_a_packed_archive(tmp_path: Path) -> None:
    path = archive(tmp_path / "set.tar.xz", usual())
    whole = bytearray(path.read_bytes())
    whole[-40] ^= 255  # behind the images, in the index or the checksum
    path.write_bytes(whole)
    with pytest.raises(UserError, match=r"set.tar.xz: cannot be read: "):
        made(path, tmp_path / "cache")


def test_hidden_files_are_no_images(tmp_path: Path) -> None:
    files = usual() | {"set/train/a/._0.png": b"what macOS adds"}
    assert len(made(archive(tmp_path / "set.tar.xz", files), tmp_path / "cache").test_set) == 10  # type: ignore[arg-type]


def test_files_that_are_no_such_archive(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file or directory; expected an archive"):
        made(tmp_path / "set.tar.xz", tmp_path / "cache")
    (tmp_path / "set.tar.xz").write_bytes(b"no archive")
    with pytest.raises(UserError, match=r"set.tar.xz: cannot be read: "):
        made(tmp_path / "set.tar.xz", tmp_path / "cache")
    whole = archive(tmp_path / "set.tar.xz", usual()).read_bytes()
    (tmp_path / "set.tar.xz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"set.tar.xz: cannot be read: "):
        made(tmp_path / "set.tar.xz", tmp_path / "cache")
    archive(tmp_path / "set.tar.xz", {"train/a/1.png": picture(1)})
    with pytest.raises(UserError, match=r"expected images as test/CLASS/NAME.jpg"):
        made(tmp_path / "set.tar.xz", tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
