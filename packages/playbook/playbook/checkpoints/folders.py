"""Checkpoint folders that several processes wrote, in the format of torch.distributed.checkpoint.

<folder>/
    __<rank>_0.distcp   each process's shards of the weights and of the optimizers' states
    .metadata           which shard lies where: a pickle, read here without running what is in it
    meta.pt             the rest of Lightning's checkpoint: loops, callbacks, hyper-parameters, configuration
    checksums.json      SHA-256 and size of every other file
"""

import errno
import io
import json
import os
import pickle
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter, filesystem
from torch.distributed.checkpoint import metadata as kinds
from torch.distributed.checkpoint._nested_dict import unflatten_state_dict  # private, as are the names that it gives
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata
from torch.serialization import _get_layout

from playbook.checkpoints import single
from playbook.checkpoints.files import Hashed, digest, flush_folder
from playbook.checkpoints.single import understood
from playbook.errors import UserError

METADATA, REST, CHECKSUMS = ".metadata", "meta.pt", "checksums.json"

# what .metadata may name: plain records of the format, and nothing that acts when it is called; the private names of
# torch are part of the format, as its files hold them
_RECORDS = (
    *(getattr(kinds, name) for name in kinds.__all__),
    kinds._MEM_FORMAT_ENCODING,
    filesystem._StorageInfo,
)
_ALLOWED: dict[tuple[str, str], Any] = {(kind.__module__, kind.__name__): kind for kind in _RECORDS} | {
    ("torch", "Size"): torch.Size,
    ("torch.serialization", "_get_layout"): _get_layout,
    # where it was written, which nothing here asks for; as text that exists on every system
    **{(module, "PosixPath"): PurePosixPath for module in ("pathlib", "pathlib._local")},
    **{(module, "WindowsPath"): PureWindowsPath for module in ("pathlib", "pathlib._local")},
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        if module == "torch" and isinstance(dtype := getattr(torch, name, None), torch.dtype):
            return dtype
        raise pickle.UnpicklingError(f"GLOBAL {module}.{name}")


class Shards:
    """What is stored in a folder, by name: `state_dict.<name>`, `optimizer_<i>.state.<name>.<key>`, ….

    Args:
        folder: the checkpoint.

    Raises:
        UserError: its .metadata is none, or holds more than that.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with understood(folder), (folder / METADATA).open("rb") as file:
            metadata = _Unpickler(file).load()
            if not isinstance(metadata, Metadata) or not all(map(self._is_inside, metadata.storage_data.values())):
                raise ValueError(f"{METADATA}: not of torch.distributed.checkpoint")
            self.metadata = metadata
            self.entries = metadata.state_dict_metadata

    def _is_inside(self, place: Any) -> bool:
        file = self.folder / place.relative_path
        return place.transform_descriptors is None and file.parent == self.folder and file.is_file()

    def reader(self) -> FileSystemReader:
        """For torch.distributed.checkpoint.load."""
        return _Reader(self)

    def value(self, name: str, names_only: bool = False) -> Any:
        """A whole tensor out of its shards, or a plain value.

        Args:
            name: of the entry.
            names_only: gives an empty tensor on the meta device.
        """
        stored = self.entries[name]
        if not isinstance(stored, TensorStorageMetadata):
            return self._read(MetadataIndex(name))
        size, dtype = stored.size, stored.properties.dtype
        if names_only:
            return torch.empty(size, dtype=dtype, device="meta")
        if sum(chunk.sizes.numel() for chunk in stored.chunks) != size.numel():
            raise ValueError(f"{name}: shards are missing")
        whole = torch.empty(size, dtype=dtype)
        for chunk in stored.chunks:
            part = whole
            for dim, (offset, length) in enumerate(zip(chunk.offsets, chunk.sizes, strict=True)):
                part = part.narrow(dim, offset, length)
            if part.numel() or not part.dim():
                part.copy_(self._read(MetadataIndex(name, chunk.offsets)))
        return whole

    def _read(self, index: MetadataIndex) -> Any:
        return torch.load(io.BytesIO(self._bytes(self.metadata.storage_data[index])), weights_only=True)

    def _bytes(self, place: Any) -> bytes:
        with (self.folder / place.relative_path).open("rb") as file:
            file.seek(place.offset)
            return file.read(place.length)

    def fault(self) -> str | None:
        """What is wrong with the shards by the checksums that torch.save gives each of them."""
        for place in self.metadata.storage_data.values():
            try:
                with zipfile.ZipFile(io.BytesIO(self._bytes(place))) as archive:
                    broken = archive.testzip()
            except (zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, RuntimeError, ValueError):
                broken = "shard"
            if broken:
                return f"corrupted ({place.relative_path})"
        return None


class _Reader(FileSystemReader):
    """Torch's own, with the .metadata that was read before; it loads tensors with weights_only=True."""

    def __init__(self, shards: Shards) -> None:
        super().__init__(shards.folder)
        self._metadata = shards.metadata

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self._metadata


def consolidate(folder: Path, names_only: bool = False) -> dict[str, Any]:
    """One checkpoint as a single process saves it, out of a folder that is whole.

    Args:
        folder: the checkpoint.
        names_only: leaves out the optimizers, and gives the weights on the meta device.

    Raises:
        UserError: it holds more than tensors and plain values, or not what a checkpoint has.
    """
    shards = Shards(folder)
    checkpoint = single.read(folder / REST)
    with understood(folder):
        chosen = [name for name in shards.entries if not names_only or name.startswith("state_dict.")]
        values = {name: shards.value(name, names_only) for name in chosen}
        nested: dict[str, Any] = unflatten_state_dict(values, shards.metadata.planner_data)
        optimizers = sorted(int(name.removeprefix("optimizer_")) for name in nested if name != "state_dict")
        return {
            **checkpoint,
            "state_dict": nested["state_dict"],
            "optimizer_states": [by_position(nested[f"optimizer_{index}"]) for index in optimizers],
        }


def by_position(state: dict[str, Any]) -> dict[str, Any]:
    """An optimizer's state with parameters counted, as torch.optim has them, in place of names."""
    places = {name: place for place, name in enumerate(n for group in state["param_groups"] for n in group["params"])}
    groups = [{**group, "params": [places[name] for name in group["params"]]} for group in state["param_groups"]]
    states = {places[name]: value for name, value in state.get("state", {}).items()}
    return {"state": dict(sorted(states.items())), "param_groups": groups}


class Writer(FileSystemWriter):
    """Torch's own, which flushes every file, and keeps the SHA-256 of what it was given.

    Args:
        folder: is written to; made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.fs: _HashedFiles = _HashedFiles()

    def storage_meta(self) -> None:
        """No path of this machine."""

    def checksums(self) -> dict[str, dict[str, Any]]:
        """Entries of checksums.json for the files of this process, once they read back the same.

        Raises:
            OSError: they do not.
        """
        return {file.name: entry_of(file, expected) for file, expected in self.fs.sums.items()}


class _HashedFiles(filesystem.FileSystem):
    def __init__(self) -> None:
        self.sums: dict[Path, str] = {}

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        with super().create_stream(path, mode) as stream:
            hashed = Hashed(stream)  # type: ignore[arg-type]  # it needs no more than write
            yield hashed
        self.sums[path] = hashed.sum.hexdigest()

    def rename(self, path: Any, new_path: Any) -> None:
        super().rename(path, new_path)
        self.sums[new_path] = self.sums.pop(path)


def entry_of(file: Path, expected: str | None = None) -> dict[str, Any]:
    """What checksums.json says of a file.

    Args:
        file: is read.
        expected: SHA-256 of what was meant to be written.

    Raises:
        OSError: it is another.
    """
    sha256 = digest(file)
    if expected not in (None, sha256):
        raise OSError(errno.EIO, f"what was written does not read back: {file.name}")
    return {"sha256": sha256, "bytes": file.stat().st_size}


def close_folder(folder: Path, entries: dict[str, dict[str, Any]]) -> None:
    """Writes checksums.json, and has the disk keep it all."""
    with (folder / CHECKSUMS).open("w", encoding="utf-8") as file:
        json.dump(dict(sorted(entries.items())), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    flush_folder(folder)


def damage(folder: Path) -> str | None:
    """What is wrong with a folder by its checksums; None if it is whole.

    One without checksums.json is Lightning's own: each shard has a checksum, .metadata has none.
    """
    if missing := [name for name in (METADATA, REST) if not (folder / name).is_file()]:
        return f"incomplete, or not a checkpoint (no {' and no '.join(missing)})"
    if not (folder / CHECKSUMS).is_file():
        try:
            rest_fault = single.damage(folder / REST)
            return Shards(folder).fault() or (rest_fault and f"{REST}: {rest_fault}")
        except UserError as error:
            return str(error).removeprefix(f"{folder.as_posix()}: ")
    try:
        listed = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))
        for name, entry in listed.items():
            file = folder / name
            if not file.is_file():
                return f"incomplete (no {name})"
            if file.stat().st_size != entry["bytes"] or digest(file) != entry["sha256"]:
                return f"corrupted (checksum of {name})"
    except (ValueError, TypeError, LookupError, AttributeError):
        return f"corrupted ({CHECKSUMS})"
    unlisted = [name for name in (METADATA, REST) if name not in listed]
    return f"corrupted ({CHECKSUMS})" if unlisted else None
