"""Files below a folder, and the names of those that samples come from."""

import os
from collections import Counter
from collections.abc import Sequence
from os import PathLike
from os.path import isfile  # Path's raises where a text is too long for a name
from pathlib import Path
from typing import Any

from torch.utils.data import ConcatDataset, Subset

KINDS_NAMED = 5  # suffixes in a message
JUNK = ("Thumbs.db", "desktop.ini")  # which Windows writes into folders of images
HEIC = (".heic", ".heif")  # photos of iPhones, which need the extra `heic`


def files_below(folder: Path, formats: Sequence[str] = ()) -> list[Path]:
    """Lists the files in a folder and its subfolders, sorted, following links and skipping hidden files.

    Args:
        folder: where to look.
        formats: suffixes in lower case, such as .png; files of all kinds if there are none.
    """
    files, visited = [], set()
    for place, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(place)) in visited:  # a link to a folder above would be followed for ever
            folders.clear()
            continue
        visited.add(real)
        folders[:] = sorted(name for name in folders if name[0] != ".")
        files += [Path(place, name) for name in names if name[0] != "."]
    return sorted(file for file in files if not formats or file.suffix.lower() in formats)


def name_others(folders: Sequence[Path], formats: Sequence[str], unmentioned: Sequence[str] = ()) -> tuple[int, str]:
    """Counts the files below some folders that are of none of the formats, by suffix.

    Args:
        folders: where to look.
        formats: suffixes in lower case; if there are none, all files are of them.
        unmentioned: suffixes of files that nobody expects to be read, such as annotations.

    Returns:
        Their number, and what is said about them; 0 if there are none.
    """
    passed = {*formats, *unmentioned}
    files = [file for folder in folders for file in files_below(folder) if file.name not in JUNK]
    others = [file for file in files if file.suffix.lower() not in passed]
    if not formats or not others:
        return 0, ""
    kinds = Counter(file.suffix.lower() or "without suffix" for file in others).most_common()
    named = ", ".join(f"{count} {kind}" for kind, count in kinds[:KINDS_NAMED])
    more = f" and {len(kinds) - KINDS_NAMED} more kinds" if len(kinds) > KINDS_NAMED else ""
    extra = "; uv sync --extra heic reads .heic" if any(kind in HEIC for kind, _ in kinds) else ""
    plural = "files" if len(others) > 1 else "file"
    return len(others), f"{len(others)} {plural} of other formats: {named}{more}, such as {others[0].as_posix()}{extra}"


def relative_name(file: str, root: str | os.PathLike[str] | None) -> str:
    """A file's path relative to a folder that contains it, with / as separator."""
    path = Path(file)
    if root is not None and path.is_relative_to(root):
        path = path.relative_to(root)
    return path.as_posix()


def file_of(dataset: Any, index: int) -> str | None:
    """The file of a sample, where the data set or one inside it keeps a list of files with an entry a sample."""
    for entries in getattr(dataset, "__dict__", {}).values():
        if isinstance(entries, list | tuple) and len(entries) == len(dataset):
            entry = entries[index]
            file = next(iter(entry), None) if isinstance(entry, tuple | list) else entry
            if isinstance(file, str | PathLike) and isfile(file):
                return str(file)
    if isinstance(dataset, Subset):
        return file_of(dataset.dataset, int(dataset.indices[index]))
    if isinstance(dataset, ConcatDataset):
        before = 0
        for part, end in zip(dataset.datasets, dataset.cumulative_sizes, strict=True):
            if index < end:
                return file_of(part, index - before)
            before = end
    inner = getattr(dataset, "dataset", None)
    return None if inner is None else file_of(inner, index)
