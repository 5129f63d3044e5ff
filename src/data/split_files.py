"""The files of each split of a data set, by their names."""

import re
from pathlib import Path

from playbook import Data, UserError, nearest
from src.data.notices import name_some
from src.data.row_files import SUFFIXES

SPLITS = {"train": ("train",), "val": ("dev", "val", "valid", "validation"), "test": ("test",)}


def split_files(data: Data, root: Path) -> dict[str, list[Path]]:
    """Finds train.*, dev.* (or val, valid, validation) and test.* in a folder, or a single table.

    A file may have parts, as train-00000-of-00002.parquet. Other tables in the folder are counted and named.

    Args:
        data: that reads them.
        root: folder, or file.

    Returns:
        The file or files of each existing split; a single file counts as `train`.

    Raises:
        UserError: there is none for training, or several for a split.
    """
    check_root(root)
    if root.is_file():
        return {"train": [root]}
    tables = [file for file in sorted(root.iterdir()) if file.suffix.lower() in SUFFIXES and file.is_file()]
    files = {}
    for split, names in SPLITS.items():
        of_split = [file for file in tables if _stem(file) in names]
        if len({(_stem(file), file.suffix) for file in of_split}) > 1:
            both = " and ".join(file.name for file in of_split)
            raise UserError(f"--data.root: {root.as_posix()} holds {both}, expected one file for {split}")
        files |= {split: of_split} if of_split else {}
    if "train" in files:
        read = {file for of_split in files.values() for file in of_split}
        names = {name for of_split in SPLITS.values() for name in of_split}
        entries = [entry for entry in sorted(root.iterdir()) if entry.is_file() and entry not in read]
        others = [entry.name for entry in entries if entry in tables or entry.name.split(".")[0].lower() in names]
        if others:
            data._left_out("files", len(others), f"{name_some(others)} of {root.as_posix()}, not read for any split")
        return files
    if len(tables) == 1 and not files:
        return {"train": tables}
    has = ", ".join(file.name for file in tables) or "none"
    kinds = ", ".join(SUFFIXES)
    raise UserError(
        f"--data.root: expected {root.as_posix()}/train.*, a file of {kinds}; got {has}"
        f"{nearest('train', [file.stem for file in tables])}"
    )


def check_root(root: Path) -> None:
    """Checks that the option `root` is a folder or a table.

    Raises:
        UserError: there is nothing, or another file.
    """
    if not root.exists():
        raise UserError(f"--data.root {root.as_posix()}: no such file or folder")
    if root.is_file() and root.suffix.lower() not in SUFFIXES:
        raise UserError(f"--data.root {root.as_posix()}: expected a file of {', '.join(SUFFIXES)}")


def is_single(files: dict[str, list[Path]], root: Path) -> bool:
    """Whether the files are one table for all splits, not named after one."""
    is_train = not root.is_file() and _stem(files["train"][0]) == "train"
    return "test" not in files and "val" not in files and not is_train


def _stem(file: Path) -> str:
    """Name of a file without the number of its part, as train for train-00000-of-00002."""
    return re.sub(r"-\d+-of-\d+$", "", file.stem).lower()
