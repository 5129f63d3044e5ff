"""Files below a folder."""

import os
from collections.abc import Sequence
from pathlib import Path


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
