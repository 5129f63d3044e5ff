"""Counts samples of validation and test that are copies of training samples."""

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

MOST_FILES = 20_000  # in all splits; the sizes of more are not compared, as that takes seconds
MOST_BYTES = 2**28  # that are read of files of equal size; 0.5 s


def copies_in(splits: Mapping[str, Sequence[Hashable]]) -> dict[str, list[int]]:
    """Finds samples of other splits that are also in train.

    Args:
        splits: what identifies each sample by its content, such as a text or a digest, for `train` and other splits.

    Returns:
        Indices of the copies in each other split that has some.
    """
    trained = set(splits.get("train", ()))
    others = {name: keys for name, keys in splits.items() if name != "train"}
    copies = {name: [index for index, key in enumerate(keys) if key in trained] for name, keys in others.items()}
    return {name: indices for name, indices in copies.items() if indices}


def copied_files(splits: Mapping[str, Sequence[Path]]) -> dict[str, list[int]]:
    """Finds files of other splits whose bytes are those of a training file; nothing if that would take seconds.

    Args:
        splits: files of `train` and of other splits.
    """
    files = {file for part in splits.values() for file in part}
    if len(files) > MOST_FILES:
        return {}
    sizes: dict[Path, int] = {}
    for file in files:
        try:
            sizes[file] = file.stat().st_size
        except OSError:  # who loads it says so
            sizes[file] = -1
    of_train = {sizes[file] for file in splits.get("train", ())}
    of_others = {sizes[file] for name, part in splits.items() if name != "train" for file in part}
    alike = sorted(file for file in files if sizes[file] in of_train & of_others and sizes[file] > 0)
    if sum(sizes[file] for file in alike) > MOST_BYTES:
        return {}
    digests = {file: hashlib.blake2b(file.read_bytes(), digest_size=16).digest() for file in alike}
    return copies_in({name: [digests.get(file, file) for file in part] for name, part in splits.items()})
