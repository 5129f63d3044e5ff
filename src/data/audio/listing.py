"""Finds labelled recordings: in folders named after their class, or in tables of files and labels."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from playbook import UserError, files_below, nearest
from src.data.audio.clips import Clip
from src.data.audio.recordings import SUFFIXES
from src.data.row_files import Form, read_rows

FILE_COLUMNS = ("file", "path", "filename", "file_name", "audio", "recording")
LABEL_COLUMNS = ("label", "class", "category", "target")
START_COLUMNS, END_COLUMNS = ("start", "begin", "onset"), ("end", "stop", "offset")
Problem = tuple[str, str]  # a place, and a sentence with it


def clips_in_folders(folder: Path, root: Path) -> tuple[list[Clip], list[Path]]:
    """Lists the recordings of each folder in a folder, which is named after their class.

    Args:
        folder: that contains a folder for each class.
        root: names of recordings are relative to it.

    Returns:
        The clips, and the folders of classes.

    Raises:
        UserError: there is no recording, or a class has none.
    """
    folders = [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name[0] != "."]
    files = {path: files_below(path, SUFFIXES) for path in folders}
    if not any(files.values()):
        kinds = ", ".join(SUFFIXES)
        raise UserError(f"--data.root: expected {folder.as_posix()}/LABEL/…, recordings of {kinds}; found none")
    if empty := [path for path, own in files.items() if not own]:
        kinds = ", ".join(SUFFIXES)
        raise UserError(f"--data.root: {empty[0].as_posix()}: is a label without recordings, expected files of {kinds}")
    clips = [Clip(file, file.relative_to(root).as_posix(), (path.name,)) for path, own in files.items() for file in own]
    return clips, folders


def clips_in_table(
    file: Path, columns: Mapping[str, str | None], separator: str | None, warn: Callable[[str], Any]
) -> tuple[list[Clip], list[Problem]]:
    """Reads a table with a row for each file and label, or each part of a file and label.

    Rows with the same file, start and end are one clip with several labels.

    Args:
        file: the table; paths in it are relative to its folder.
        columns: names of the columns `file`, `label`, `start` and `end`; None for the usual names.
        separator: what separates several labels in a field; None if a field has one.
        warn: called with a sentence about fields that look like several rows.

    Returns:
        The clips, and a place and a sentence for each row that cannot be used.

    Raises:
        UserError: the table lacks a column, or has no row.
    """
    clips: dict[Any, Clip] = {}
    problems: list[Problem] = []
    for line, row in read_rows(file, Form(), None, warn):
        place = f"{file.as_posix()}:{line}"
        if isinstance(row, str):
            problems.append((place, f"{place}: {row}"))
            continue
        names = {option: _column(place, row, option, columns.get(option)) for option in _COLUMNS}
        try:
            clip = _clip(row, names, file.parent, separator)
        except UserError as error:
            problems.append((place, f"{place}: {error}"))
            continue
        key = (clip.source, clip.start, clip.end)
        labels = (*clips[key].labels, *clip.labels) if key in clips else clip.labels
        first = clips.get(key, clip._replace(place=f"{file.name}:{line}"))
        clips[key] = first._replace(labels=tuple(dict.fromkeys(labels)))
    return list(clips.values()), problems


_COLUMNS = {"file": FILE_COLUMNS, "label": LABEL_COLUMNS, "start": START_COLUMNS, "end": END_COLUMNS}


def _column(place: str, row: Mapping[str, Any], option: str, wanted: str | None) -> str | None:
    """The name of a column; None for an optional one that the table does not have."""
    names = (wanted,) if wanted else _COLUMNS[option]
    name = next((name for name in names if name in row), None)
    if name is None and (wanted or option in ("file", "label")):
        near = next(filter(None, (nearest(name, row) for name in names)), "")
        raise UserError(
            f"--data.{option}_column: {place}: expected a column {' or '.join(names)}, got {', '.join(row)}{near}"
        )
    return name


def _clip(row: Mapping[str, Any], names: Mapping[str, str | None], folder: Path, separator: str | None) -> Clip:
    """The clip of a row.

    Raises:
        UserError: a field is empty or cannot be read, or there is no such file.
    """
    path, label = (str(row[str(names[option])] or "").strip() for option in ("file", "label"))
    if not path:
        raise UserError(f"{names['file']} is empty, expected the path of a recording")
    file = folder / path
    if not file.is_file():
        siblings = [entry.name for entry in file.parent.iterdir()] if file.parent.is_dir() else []
        raise UserError(f"{file.as_posix()}: no such file{nearest(file.name, siblings)}")
    if file.suffix.lower() not in SUFFIXES:
        raise UserError(f"{file.as_posix()}: expected a recording of {', '.join(SUFFIXES)}")
    labels = tuple(filter(None, (name.strip() for name in label.split(separator)))) if separator else (label,)
    if not separator and not label:
        raise UserError(f"{names['label']} is empty, expected a label")
    start, end = (_seconds(row, names[option]) for option in ("start", "end"))
    if end is not None and end <= (start or 0.0):
        raise UserError(f"expected an end after the start {start or 0:g} s, got {end:g} s")
    part = "" if start is None and end is None else f"@{start or 0:g}-{'' if end is None else f'{end:g}'}"
    return Clip(file, f"{path}{part}", labels, start or 0.0, end)


def _seconds(row: Mapping[str, Any], column: str | None) -> float | None:
    value = "" if column is None else str(row[column] if row[column] is not None else "").strip()
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise UserError(f"{column}: expected seconds of at least 0, got {value}")
    return seconds


def sorted_labels(labels: Sequence[str]) -> list[str]:
    """Labels in alphabetical order, or by number if all are integers, so that 10 comes after 9."""
    different = set(labels)
    are_numbers = all(label.removeprefix("-").isdecimal() for label in different)
    return sorted(different, key=(lambda label: (int(label), label)) if are_numbers else None)
