"""Copies a script's folder, and confines the process to it: no writes elsewhere, no network."""

import ctypes
import os
import shutil
import socket
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch.utils import _pytree as pytree

_BYTES, _FILES = 2**28, 5000  # that are copied; links, which cannot be written to, stand for the rest
_LEVELS, _SIBLINGS = 3, 1000  # folders above whose content is linked: scripts read ../data
_ALONE = ("__pycache__", "node_modules")
_NETWORK = "the review blocks the network"
_MARKS = (_NETWORK, "Permission denied", "cross-device link")  # of errors in place of those of `confine`


class ForbiddenError(PermissionError):
    """The script used the network or wrote outside of its folder."""


def is_forbidden(error: BaseException | None) -> bool:
    """Whether an error was caused, directly or indirectly, by a restriction of `confine`."""
    if error is None:
        return False
    is_own = isinstance(error, PermissionError) or any(mark in str(error) for mark in _MARKS)
    return is_own or is_forbidden(error.__cause__) or is_forbidden(error.__context__)


class Copy:
    """A scratch copy of a folder; large files and the folder's surroundings are links.

    A link in the folder makes way for what is written in its place, once `confine` has been called.

    Args:
        folder: the original.
        scratch: an empty folder.
    """

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.original = folder.resolve()
        self.scratch = scratch
        self.bytes, self.files = 0, 0
        above = list(self.original.parents)[:_LEVELS]
        inner = scratch
        for parent in reversed(above):
            inner.mkdir(exist_ok=True)
            below = self.original.relative_to(parent).parts[0]
            for entry in sorted(os.listdir(parent))[:_SIBLINGS] if os.access(parent, os.R_OK) else ():
                if entry != below and parent / entry != scratch:
                    (inner / entry).symlink_to(parent / entry)
            inner = inner / below
        self.folder = inner
        self._copy(self.original, inner)

    def _copy(self, source: Path, target: Path) -> None:
        target.mkdir()
        for entry in os.scandir(source):
            path, new = Path(entry.path), target / entry.name
            if self.scratch.is_relative_to(path) or not os.access(path, os.R_OK):
                continue
            if entry.is_dir(follow_symlinks=False) and not self._stays(path):
                self._copy(path, new)
            elif entry.is_file(follow_symlinks=False) and self._fits(entry.stat().st_size):
                shutil.copyfile(path, new)
            elif entry.name != "__pycache__":
                new.symlink_to(path.resolve())

    def _stays(self, folder: Path) -> bool:
        """Whether a folder is linked as a whole: an environment, a repository, or any beyond the limit of files."""
        full = self.files >= _FILES
        return folder.name in _ALONE or folder.name[0] == "." or (folder / "pyvenv.cfg").exists() or full

    def _fits(self, size: int) -> bool:
        if self.bytes + size > _BYTES or self.files >= _FILES:
            return False
        self.bytes += size
        self.files += 1
        return True

    def restored(self, tree: Any) -> Any:
        """Replaces the copy's path by the original's in all texts of nested lists and dicts."""
        return pytree.tree_map_only(str, lambda text: text.replace(str(self.folder), str(self.original)), tree)


def confine(scratch: Path) -> None:
    """Blocks the network, and writes outside of a folder, for this process and its children."""
    os.environ |= {"TMPDIR": str(scratch), "MPLBACKEND": "Agg", "WANDB_MODE": "disabled", "HF_HUB_OFFLINE": "1"}
    tempfile.tempdir = str(scratch)
    sys.dont_write_bytecode = True

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise ForbiddenError(_NETWORK)

    for name in ("connect", "connect_ex", "sendto"):
        setattr(socket.socket, name, refuse)
    socket.create_connection = socket.getaddrinfo = refuse
    save = torch.save

    def make_way_and_save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        _make_way(scratch, f)
        save(obj, f, *args, **kwargs)

    torch.save = make_way_and_save  # which does not open its file by Python
    sys.addaudithook(lambda event, args: _make_way(scratch, args[0]) if event == "open" and _writes(args) else None)
    if not _landlock(scratch):
        sys.addaudithook(_watch(scratch))


def _make_way(scratch: Path, file: Any) -> None:
    """Removes a link in the folder before a file is written in its place."""
    if isinstance(file, str | os.PathLike):
        path = Path(os.path.abspath(file))
        if path.is_symlink() and path.is_relative_to(scratch):
            path.unlink()


def _writes(args: tuple[Any, ...]) -> bool:
    """Whether an audit event opens a file for writing from scratch."""
    return isinstance(args[2], int) and bool(args[2] & (os.O_CREAT | os.O_TRUNC))


def _landlock(scratch: Path) -> bool:
    """Restricts writes by Landlock (Linux 5.13 and later); returns whether that is supported."""
    if sys.platform != "linux":
        return False
    create, add, restrict, no_new_privileges = 444, 445, 446, 38  # numbers of system calls, and of a prctl
    kernel = ctypes.CDLL(None)
    moves = [13] if kernel.syscall(create, None, 0, 1) > 1 else []  # its second version allows moves between folders
    changes = sum(1 << bit for bit in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12, *moves))  # write, remove, make: landlock(7)
    rules = kernel.syscall(create, ctypes.create_string_buffer(struct.pack("<Q", changes), 8), 8, 0)
    if rules < 0:
        return False
    for folder in (str(scratch), "/dev", "/proc"):
        opened = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        rule = ctypes.create_string_buffer(struct.pack("<Qi", changes, opened), 12)
        kernel.syscall(add, rules, 1, rule, 0)
        os.close(opened)
    kernel.prctl(no_new_privileges, 1, 0, 0, 0)
    done = kernel.syscall(restrict, rules, 0) == 0
    os.close(rules)
    return done


def _watch(scratch: Path) -> Callable[[str, tuple[Any, ...]], None]:
    """The fallback for other systems: an audit hook that blocks Python's own writes elsewhere."""
    home, changing = os.path.realpath(scratch) + os.sep, os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
    events = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.symlink", "os.link")

    def watch(event: str, args: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(args[2], int) and args[2] & changing
        for path in args[:1] if writes else args[:2] if event in events else ():
            name = os.fsdecode(path) if isinstance(path, str | bytes) else os.devnull
            if not os.path.realpath(name).startswith((home, "/dev/", "/proc/")):
                raise ForbiddenError(f"{name}: the review lets a script write in its own folder alone")

    return watch
