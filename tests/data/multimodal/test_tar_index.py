"""The index of tar files against Python's tarfile and webdataset, and damaged files."""

import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from playbook import UserError
from src.data.multimodal import tar_index
from src.data.multimodal.image_text_shards import samples_of
from src.data.multimodal.tar_index import Member, members_of, read_headers

FILES = {
    "0001.jpg": b"\xff" * 700,
    "0001.txt": b"a red rose",
    "0002.JPG": b"\xfe" * 512,
    "0002.txt": b"",
    "folder.name/a.b.jpg": b"1",
    "folder.name/a.txt": "blühend".encode(),
    f"{'long/' * 40}{'x' * 120}.png": b"2" * 3,
    ".hidden.txt": b"3",
    "README": b"4",
}


def write_tar(path: Path, files: Mapping[str, bytes], form: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=form) as archive:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT], ids=["pax", "gnu"])
def test_members_are_those_of_tarfile(tmp_path: Path, form: int) -> None:
    shard = write_tar(tmp_path / "a.tar", FILES, form)
    members = members_of(shard)
    assert {member.name: member.read() for member in members} == FILES
    with tarfile.open(shard) as archive:
        expected = [(info.name, info.offset_data, info.size) for info in archive if info.isreg()]
    assert [member[1:] for member in members] == expected


def test_samples_are_those_of_webdataset(tmp_path: Path) -> None:
    reading = pytest.importorskip("webdataset.tariterators")
    shard = write_tar(tmp_path / "a.tar", FILES)
    with shard.open("rb") as stream:
        samples = list(reading.group_by_keys(reading.tar_file_expander([{"url": "a.tar", "stream": stream}])))
    theirs = [
        (sample["__key__"], {name: value for name, value in sample.items() if name[:2] != "__"}) for sample in samples
    ]
    ours = [
        (sample.key, {extension: member.read() for extension, member in sample.members.items()})
        for sample in samples_of(members_of(shard))
    ]
    assert ours == theirs
    assert len(ours) == 4


def test_the_index_is_made_once_and_again_for_another_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = write_tar(tmp_path / "a.tar", FILES)
    first = members_of(shard)
    assert (tmp_path / ".a.tar.index.npz").is_file()
    with monkeypatch.context() as patch:
        patch.setattr(tar_index, "read_headers", lambda path: pytest.fail("read again"))
        assert members_of(shard) == first
    write_tar(shard, {"0003.txt": b"another"})
    os.utime(shard, ns=(0, 0))
    assert [member.name for member in members_of(shard)] == ["0003.txt"]


def test_an_index_that_is_cut_off_is_made_again(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "a.tar", FILES)
    first = members_of(shard)
    index = tmp_path / ".a.tar.index.npz"
    index.write_bytes(index.read_bytes()[:100])
    assert members_of(shard) == first


def test_a_folder_that_is_read_only(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For root, every folder can be written to, so the hidden file's place is taken instead."""
    shard = write_tar(tmp_path / "a.tar", FILES)
    (tmp_path / ".a.tar.index.npz").mkdir()
    first = members_of(shard)
    assert len(list((cache / "playbook" / "shards").glob("*.npz"))) == 1
    monkeypatch.setattr(tar_index, "read_headers", lambda path: pytest.fail("read again"))
    assert members_of(shard) == first


def damaged(path: Path, form: int = tarfile.PAX_FORMAT) -> tuple[Path, list[Member]]:
    shard = write_tar(path, {f"{i:04d}.{end}": bytes([i]) * 600 for i in range(3) for end in ("jpg", "txt")}, form)
    return shard, list(read_headers(shard))


def test_a_shard_that_is_cut_off_in_a_member(tmp_path: Path) -> None:
    shard, members = damaged(tmp_path / "a.tar")
    os.truncate(shard, members[3].offset + 10)
    with pytest.raises(UserError, match=rf"a\.tar: is truncated in {members[3].name}, which ends at byte"):
        members_of(shard)


def test_a_shard_that_is_cut_off_between_members(tmp_path: Path) -> None:
    shard, members = damaged(tmp_path / "a.tar")
    os.truncate(shard, members[3].offset - 512)
    with pytest.raises(UserError, match=rf"a\.tar: is truncated after {members[2].name}, at byte"):
        members_of(shard)


def test_a_damaged_header(tmp_path: Path) -> None:
    shard, members = damaged(tmp_path / "a.tar")
    content = bytearray(shard.read_bytes())
    content[members[2].offset - 512 + 20] ^= 255
    shard.write_bytes(content)
    with pytest.raises(UserError, match=rf"a\.tar: has a damaged header after {members[1].name}, at byte 3,584 \(bad"):
        members_of(shard)


def test_a_header_of_zeros(tmp_path: Path) -> None:
    shard, members = damaged(tmp_path / "a.tar")
    content = bytearray(shard.read_bytes())
    content[members[2].offset - 512 : members[2].offset] = bytes(512)
    shard.write_bytes(content)
    with pytest.raises(UserError, match=f"damaged header after {members[1].name}"):
        members_of(shard)


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"\x1f\x8b" + bytes(600))
    with pytest.raises(UserError, match=r"a\.tar: is compressed, expected a plain tar file"):
        members_of(tmp_path / "a.tar")
    (tmp_path / "b.tar").write_bytes(b"no tar file" * 100)
    with pytest.raises(UserError, match=r"b\.tar: has a damaged header at its beginning, at byte 0"):
        members_of(tmp_path / "b.tar")
    (tmp_path / "c.tar").write_bytes(b"")
    with pytest.raises(UserError, match=r"c\.tar: is truncated at its beginning, at byte 0"):
        members_of(tmp_path / "c.tar")


def test_a_sparse_file_and_a_link(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        link = tarfile.TarInfo("1.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "y" * 150  # long enough for a header of its own
        archive.addfile(link)
    assert members_of(tmp_path / "a.tar") == []
    info = tarfile.TarInfo("1.jpg")
    info.type = tarfile.GNUTYPE_SPARSE
    (tmp_path / "b.tar").write_bytes(info.tobuf() + bytes(1024))
    with pytest.raises(UserError, match=r"b\.tar: 1\.jpg is a sparse file"):
        members_of(tmp_path / "b.tar")


def test_a_damaged_pax_header(tmp_path: Path) -> None:
    info = tarfile.TarInfo("1.jpg")
    info.type, info.size = tarfile.XHDTYPE, 20
    (tmp_path / "a.tar").write_bytes(info.tobuf(tarfile.USTAR_FORMAT) + b"no record".ljust(512, b"\0") + bytes(1024))
    with pytest.raises(UserError, match=r"a\.tar: has a damaged pax header before 1\.jpg"):
        members_of(tmp_path / "a.tar")


def test_a_shard_that_has_become_shorter(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "a.tar", {"1.txt": b"12345678"})
    [member] = members_of(shard)
    os.truncate(shard, member.offset + 3)
    with pytest.raises(OSError, match="has 3 of 8 bytes; the shard has changed") as raised:
        member.read()
    assert raised.value.filename == member.place


def test_two_members_of_a_sample_with_one_extension(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "a.tar", {"1.jpg": b"1", "1.JPG": b"2"})
    with pytest.raises(UserError, match=r"a\.tar/1\.JPG: occurs twice in its sample"):
        list(samples_of(members_of(shard)))
