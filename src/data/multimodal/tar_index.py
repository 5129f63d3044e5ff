"""Members of uncompressed tar files by name, offset and size, so that each can be read on its own."""

import hashlib
import os
import tarfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np

from playbook import UserError

BLOCK = 512  # bytes; headers have one block, and data begins and ends at one
ZEROS = bytes(BLOCK)
MOST_OPEN = 128  # files at a time
ADVICE = "download or write the shard again"


class Member(NamedTuple):
    """A file inside a tar file.

    Args:
        shard: path of the tar file.
        name: path inside of it.
        offset: of its first byte.
        size: in bytes.
    """

    shard: str
    name: str
    offset: int
    size: int

    def read(self) -> bytes:
        """Its content; several threads and processes may read at the same time.

        Raises:
            OSError: the tar file is missing, or shorter than it was when it was indexed.
        """
        content = os.pread(_opened(self.shard).descriptor, self.size, self.offset)
        if len(content) < self.size:
            raise OSError(0, f"has {len(content)} of {self.size} bytes; the shard has changed", self.place)
        return content

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"{self.shard}/{self.name}"


class _Descriptor:
    """An open file, closed once nobody holds it."""

    def __init__(self, path: str) -> None:
        self.descriptor = -1
        self.descriptor = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


@lru_cache(MOST_OPEN)
def _opened(path: str) -> _Descriptor:
    return _Descriptor(path)


def members_of(shard: Path) -> list[Member]:
    """The files in a tar file, in their order, by its index.

    The index is made once, by reading all headers, and kept as a hidden file beside the shard, or in the user's cache
    where that is not allowed. It is made again if size or time of the shard have changed.

    Args:
        shard: an uncompressed tar file.

    Raises:
        UserError: it is damaged, truncated, compressed or no tar file.
    """
    about = shard.stat()
    identity = np.array([about.st_size, about.st_mtime_ns])
    places = _index_files(shard)
    for place in places:
        if (members := _load(place, identity, shard)) is not None:
            return members
    members = list(read_headers(shard))
    for place in places:
        if _save(place, identity, members):
            break
    return members


def _index_files(shard: Path) -> list[Path]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "playbook" / "shards"
    digest = hashlib.sha256(str(shard.resolve()).encode()).hexdigest()[:16]
    return [shard.with_name(f".{shard.name}.index.npz"), cache / f"{digest}.npz"]


def _load(place: Path, identity: np.ndarray, shard: Path) -> list[Member] | None:
    try:
        with place.open("rb") as file, np.load(file, allow_pickle=False) as index:
            if not np.array_equal(index["identity"], identity):
                return None
            names = index["names"].tobytes().decode(errors="surrogateescape").split("\0")
            extents = index["extents"].tolist()  # offset and size of each
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):  # missing, or cut off
        return None
    if not extents:
        return []
    return [Member(str(shard), name, offset, size) for name, (offset, size) in zip(names, extents, strict=True)]


def _save(place: Path, identity: np.ndarray, members: list[Member]) -> bool:
    """Whether an index could be written; it appears whole, as other processes may read it."""
    names = "\0".join(member.name for member in members).encode(errors="surrogateescape")
    extents = np.array([[member.offset, member.size] for member in members], dtype=np.int64).reshape(-1, 2)
    draft = place.with_name(f"{place.stem}.{os.getpid()}.unfinished.npz")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        np.savez(draft, identity=identity, names=np.frombuffer(names, dtype=np.uint8), extents=extents)
        draft.replace(place)
    except OSError:  # a folder that is read-only, or a full disk
        draft.unlink(missing_ok=True)
        return False
    return True


def read_headers(shard: Path) -> Iterator[Member]:
    """Reads the headers of a tar file one after the other.

    Args:
        shard: an uncompressed tar file, as written by GNU tar, BSD tar or Python.

    Yields:
        Regular files; folders and links are left out.

    Raises:
        UserError: as for `members_of`. Names the last member that is whole.
    """
    path = shard.as_posix()
    length = shard.stat().st_size
    descriptor = _Descriptor(path)
    offset, last = 0, ""
    attributes: dict[str, str] = {}  # of the next member, by headers before its own
    while True:
        block = os.pread(descriptor.descriptor, BLOCK, offset)
        behind = f"after {last}" if last else "at its beginning"
        if block == ZEROS and os.pread(descriptor.descriptor, BLOCK, offset + BLOCK) in (ZEROS, b""):
            return
        if len(block) < BLOCK:
            raise UserError(f"--data.root: {path}: is truncated {behind}, at byte {length:,}; {ADVICE}")
        if not offset and block[:2] == b"\x1f\x8b":
            raise UserError(f"--data.root: {path}: is compressed, expected a plain tar file; unpack it with gunzip")
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            text = f"has a damaged header {behind}, at byte {offset:,} ({error}); {ADVICE}"
            raise UserError(f"--data.root: {path}: {text}") from None
        start, size = offset + BLOCK, int(attributes.get("size", header.size))
        name = attributes.get("path", header.name)
        stored = size if header.isreg() or header.type in _DESCRIBING else 0
        if start + stored > length:
            raise UserError(
                f"--data.root: {path}: is truncated in {name}, which ends at byte {start + stored:,} of {length:,}; "
                f"{ADVICE}"
            )
        offset = start + -(-stored // BLOCK) * BLOCK
        if header.type in _DESCRIBING:
            attributes |= _attributes(header.type, os.pread(descriptor.descriptor, size, start), path, name)
            continue
        if header.type == tarfile.GNUTYPE_SPARSE or any(key.startswith("GNU.sparse") for key in attributes):
            raise UserError(f"--data.root: {path}: {name} is a sparse file, expected plain ones")
        attributes = {}
        if header.isreg():
            yield Member(path, name, start, size)
            last = name


_DESCRIBING = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


def _attributes(kind: bytes, content: bytes, path: str, name: str) -> dict[str, str]:
    """What a header before the next member says of it: its long name, or the records of POSIX's pax format."""
    if kind == tarfile.GNUTYPE_LONGNAME:
        return {"path": content.rstrip(b"\0").decode(errors="surrogateescape")}
    if kind in (tarfile.GNUTYPE_LONGLINK, tarfile.XGLTYPE):
        return {}
    records = {}
    while content.strip(b"\0"):
        digits, space, _ = content.partition(b" ")
        if not space or not digits.isdigit() or not 0 < int(digits) <= len(content):
            raise UserError(f"--data.root: {path}: has a damaged pax header before {name}; {ADVICE}")
        key, _, value = content[len(digits) + 1 : int(digits) - 1].partition(b"=")
        records[key.decode(errors="surrogateescape")] = value.decode(errors="surrogateescape")
        content = content[int(digits) :]
    return records
