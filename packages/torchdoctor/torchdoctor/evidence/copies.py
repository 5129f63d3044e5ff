"""Finds samples of another split that copy training samples: the same file, content or image."""

import copy
import hashlib
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d
from torch.utils.data import Dataset, Subset

from torchdoctor.evidence.contents import sample_key, shared_keys
from torchdoctor.evidence.samples import dataset_size, leaves, spread_indices, until_deadline

_SAMPLES, _SECONDS = 1000, 0.6  # of a split that are read
_FILES, _BYTES = 20_000, 2**27  # of all splits that are compared; of files of equal size, which are read
_LEAST, _FEWEST = 0.01, 2  # share and number of the samples: public data have some twice
_ROWS, _VALUES = 0.3, 3  # of short rows of a table, which may be equal by chance; tokens of a row
_SIDE = 32  # pixels of the least image, and of those that are compared
_MEAN, _MOST, _CONTRAST = 0.1, 0.75, 0.2  # difference, by an image's deviation; that, by the deviation of all images
_CONSTANTS = 4096  # numbers of a transform at most, such as the mean of an image
_GREYS = 0.15  # of the pixels have a value that no other has: photographs do, drawings do not

Read = dict[int, dict[str, Tensor]]  # leaves of samples by their numbers


class Copies(NamedTuple):
    """Samples that are copies.

    Args:
        number: of them.
        of: samples that were compared.
        how: what they are, such as "copies".
        example: names of the first and of the training sample.
    """

    number: int
    of: int
    how: str
    example: str

    def share(self) -> float:
        """Of the samples that were compared."""
        return self.number / self.of


def find_copies(train: Any, other: Any, kind: str) -> Copies | None:
    """The copies in another data set; None if so many may be chance.

    Args:
        train: map-style training data.
        other: map-style data of another split.
        kind: of that split, such as "test".
    """
    if not dataset_size(train) or not dataset_size(other):
        return None
    (ours, our_numbers), (theirs, their_numbers) = _underlying_samples(train), _underlying_samples(other)
    known, others = _files(ours), _files(theirs)
    if (
        known
        and others
        and (copies := _copies_by_file([known[i] for i in our_numbers], [others[i] for i in their_numbers]))
    ):
        return copies
    if ours is theirs:
        are_parts = isinstance(our_numbers, list) and isinstance(their_numbers, list)
        set_of = set(our_numbers)
        pairs = [(i, i) for i in their_numbers if i in set_of] if are_parts else []
        return _copies(pairs, len(their_numbers), "copies", (ours, theirs), kind) if pairs else None
    plain = _without_augmentation(ours, theirs)
    read = _read(plain, our_numbers) if plain is not None else {}
    if not read:
        ours, read = train, _read(train, range(len(train)))
    compared = _read(theirs, their_numbers) if plain is not None else _read(other, range(len(other)))
    theirs = theirs if plain is not None else other
    for how, pairs in (
        ("copies", _copies_by_content(read, compared, theirs)),
        ("near copies", _copies_by_image(read, compared)),
    ):
        if pairs:
            return _copies(pairs, len(compared), how, (ours, theirs), kind)
    return None


def _copies(pairs: list[tuple[int, int]], of: int, how: str, datasets: tuple[Any, Any], kind: str) -> Copies:
    """Names copies by their files or rows, where the data sets list them."""
    (theirs, ours), (train, other) = pairs[0], datasets
    known, others = _files(train), _files(other)
    if known and others:
        return Copies(len(pairs), of, how, _example(known[ours], others[theirs]))
    names = [
        names[number] if (names := _names(dataset)) else f"{split} sample {number}"
        for dataset, number, split in ((other, theirs, kind), (train, ours, "training"))
    ]
    return Copies(len(pairs), of, how, " = ".join(names))


def _underlying_samples(dataset: Any) -> tuple[Any, Sequence[int]]:
    """The innermost data set below subsets and wrappers, and the indices of the samples in it."""
    numbers: Sequence[int] = range(dataset_size(dataset) or 0)
    while True:
        if isinstance(dataset, Subset):
            numbers, dataset = [int(dataset.indices[number]) for number in numbers], dataset.dataset
            continue
        inner = [value for value in getattr(dataset, "__dict__", {}).values() if isinstance(value, Dataset)]
        if len(inner) != 1 or dataset_size(inner[0]) != dataset_size(dataset):
            return dataset, numbers
        dataset = inner[0]


def _without_augmentation(train: Any, other: Any) -> Any:
    """The training data with the transforms of other data of the same class."""
    if type(train) is not type(other) or not hasattr(train, "__dict__"):
        return None
    plain = copy.copy(train)
    for name, value in (vars(train) | vars(other)).items():
        own = vars(train).get(name)
        if (callable(value) or callable(own)) and not _holds_samples(own):
            vars(plain)[name] = vars(other).get(name)
    return plain


def _holds_samples(value: Any) -> bool:
    """Whether what a data set calls holds its samples, as no transform does."""
    parts = getattr(value, "__dict__", {}).values()
    return any(isinstance(part, Tensor | np.ndarray) and np.prod(part.shape) > _CONSTANTS for part in parts)


def _read(dataset: Any, numbers: Sequence[int]) -> Read:
    """Reads samples evenly over the indices; nothing if the data set raises an error."""
    chosen = [numbers[place] for place in spread_indices(range(len(numbers)), _SAMPLES)]
    order = torch.randperm(len(chosen), generator=torch.Generator().manual_seed(0)).tolist()  # as time may be short
    try:
        read = {chosen[i]: leaves(dataset[chosen[i]]) for i in until_deadline(order, _SECONDS)}
    except Exception:  # of any kind: without its own transform, or with other transforms
        return {}
    return {number: read[number] for number in sorted(read)}


def _are_chance(number: int, of: int, distinct: int, trained: int) -> bool:
    """Whether samples coincide with training samples hardly more often than training samples among themselves."""
    repeated = 1 - distinct / max(1, trained)
    return number < _FEWEST or repeated > 0.5 or number <= (_LEAST + 5 * repeated) * of


def _copies_by_content(ours: Read, theirs: Read, dataset: Any) -> list[tuple[int, int]]:
    """Pairs of samples whose largest tensors are equal."""
    known = {number: sample_key(sample) for number, sample in ours.items()}
    others = {number: sample_key(sample) for number, sample in theirs.items()}
    first = {content: number for number, content in reversed(known.items())}
    pairs = [(number, first[content]) for number, content in others.items() if content in first]
    if len(pairs) < _FEWEST or shared_keys([*known.values()], [*others.values()])[0]:
        return pairs if len(pairs) >= _FEWEST else []
    rows = [max((leaf.numel() for leaf in theirs[number].values()), default=0) for number, _ in pairs]
    are_rows = _names(dataset) is not None and min(rows, default=0) >= _VALUES
    return pairs if are_rows and len(pairs) > _ROWS * len(others) else []


def _names(dataset: Any) -> list[str] | None:
    """The rows of the samples in a file, such as list.csv:17, where a data set keeps them."""
    for value in getattr(dataset, "__dict__", {}).values():
        if not isinstance(value, list) or not value or len(value) != dataset_size(dataset):
            continue
        if all(isinstance(name, str) and re.search(r"\S:\d+$", name) for name in value):
            return value
    return None


def _files(dataset: Any) -> list[str] | None:
    """The file of each sample, where a data set keeps their paths: of several lists, that of the largest first file."""
    path_lists: list[list[str]] = []
    attributes = getattr(dataset, "__dict__", {})
    folders = ["", *(str(value) for value in attributes.values() if isinstance(value, str | os.PathLike))]
    for value in attributes.values():
        columns = [value[name] for name in value] if type(value).__name__ == "DataFrame" else [value]
        for column in columns:
            is_list = isinstance(column, Sequence | np.ndarray) or type(column).__name__ == "Series"
            if not is_list or isinstance(column, str) or len(column) != dataset_size(dataset):
                continue
            paths: Any = [item[0] if isinstance(item, tuple | list) and item else item for item in column]
            if not paths or not all(isinstance(path, str | os.PathLike) for path in paths):
                continue
            joined = ([os.path.join(folder, path) for path in paths] for folder in folders)
            path_lists += [files for files in joined if os.path.isfile(files[0])][:1]
    return max(path_lists, key=lambda files: os.path.getsize(files[0]), default=None)


def _copies_by_file(ours: list[str], theirs: list[str]) -> Copies | None:
    """Pairs of files with the same bytes; files that hold several samples are left out."""
    paths = {path for part in (ours, theirs) for path, number in Counter(part).items() if number == 1}
    if len(paths) > _FILES:
        return None
    sizes = {path: os.path.getsize(path) for path in paths if os.path.isfile(path)}
    shared = {sizes.get(path) for path in ours} & {sizes.get(path) for path in theirs} - {None, 0}
    alike = sorted(path for path, number in sizes.items() if number in shared)
    if sum(sizes[path] for path in alike) > _BYTES:
        return None
    contents = {path: hashlib.blake2b(Path(path).read_bytes()).digest() for path in alike}
    first = {contents[path]: path for path in reversed(ours) if path in contents}
    pairs = [(path, first[contents[path]]) for path in theirs if contents.get(path) in first]
    distinct = len(ours) - sum(path in contents for path in ours) + len(first)
    if not pairs or _are_chance(len(pairs), len(theirs), distinct, len(ours)):
        return None
    return Copies(len(pairs), len(theirs), "copies", _example(pairs[0][1], pairs[0][0]))


def _example(ours: str, theirs: str) -> str:
    """Two files, relative to their common folder."""
    paths = [os.path.abspath(path) for path in (theirs, ours)]
    folder = os.path.commonpath([os.path.dirname(path) for path in paths])
    return " = ".join(Path(os.path.relpath(path, folder)).as_posix() for path in paths)


def _copies_by_image(ours: Read, theirs: Read) -> list[tuple[int, int]]:
    """Pairs of images that differ by compression or size alone."""
    known, others = _grey_images(ours), _grey_images(theirs)
    if min(len(known), len(others)) < _FEWEST:
        return []
    trained = torch.stack([*known.values()])
    looked = torch.stack([*others.values()])
    least = _CONTRAST * trained.std()
    nearest = torch.cdist(looked, trained).argmin(1)
    near = _are_near(looked, trained[nearest], least)
    among = torch.cdist(trained, trained).fill_diagonal_(torch.inf).argmin(1)
    distinct = len(trained) - int(_are_near(trained, trained[among], least).sum())
    if _are_chance(int(near.sum()), len(theirs), distinct, len(trained)):
        return []
    numbers = [*known]
    return [(number, numbers[nearest[i]]) for i, number in enumerate(others) if near[i]]


def _are_near(one: Tensor, two: Tensor, least: Tensor) -> Tensor:
    """Whether images (N, P) differ by little of their contrast, on average and everywhere: (N,) of bool."""
    difference, deviation = (one - two).abs(), one.std(1)
    is_near = (difference.mean(1) <= _MEAN * deviation) & (difference.amax(1) <= _MOST * deviation)
    return is_near & (deviation >= least)


def _grey_images(read: Read) -> dict[int, Tensor]:
    """Samples with an image of at least 32 × 32 pixels that is no drawing: its grey values (1024,)."""
    images = {}
    for number, sample in read.items():
        image = max(sample.values(), key=Tensor.numel, default=torch.zeros(0))
        if image.dim() == 3 and image.shape[-1] in (1, 3, 4) and image.shape[0] not in (1, 3, 4):
            image = image.permute(2, 0, 1)
        if image.dim() not in (2, 3) or min(image.shape[-2:]) < _SIDE or image[..., 0, 0].numel() > 4:
            continue
        grey = image.float().reshape(-1, *image.shape[-2:]).mean(0)
        pixels = adaptive_avg_pool2d(grey[None], _SIDE).flatten()
        if pixels.isfinite().all() and len(pixels.unique()) >= _GREYS * len(pixels):
            images[number] = pixels
    return images
