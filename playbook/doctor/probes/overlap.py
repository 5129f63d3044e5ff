"""Samples that are in the training and in the validation data."""

import ast
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler, Subset

from playbook.doctor import blame, source
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.replay import array, first_line
from playbook.doctor.samples import base, indices, leaves, size, train_loaders, whole
from playbook.doctor.subject import Subject

TRAIN_VAL_OVERLAP = Defect(
    "train-val-overlap",
    "critical",
    "Validation measures what was learned by heart.",
    long=True,
    shown_by=Evidence("measured", "the samples of training and validation were compared by content"),
)
DEFECTS = (TRAIN_VAL_OVERLAP,)

_SAMPLES, _SECONDS = 5000, 0.4
_FEWEST = 8  # samples: a graph whose nodes are split by a mask is one sample of both
_SPLITS = ("random_split", "train_test_split", "Subset", "permutation", "randperm", "sample", "iloc")


def overlap(subject: Subject) -> Iterator[Finding | str]:
    """Compares samples by content, and parts of one data set by index.

    Samples of few possible values, as short texts have, coincide by chance: they must do so five times as often as
    within the training data, plus 1 %. Real numbers do not: 1 % is enough. Where augmentation hides what is the same,
    arrays are compared that both data sets keep. Several validation loaders of which one is apart are legitimate.
    """
    trains, vals = train_loaders(subject), blame.loaders(subject, "val")
    if not trains or not vals:
        return
    shares = [max((_share(_read(train), _read(val)) for train in trains), default=(0.0, 0, "")) for val, _ in vals]
    if min(shares)[0] <= 0:
        yield "no validation sample is in the training data"
        return
    share, number, how = max(shares)
    message = f"{number} of {round(number / share)} validation samples ({share:.0%}) are also training samples, {how}"
    fix = "train_set, val_set = random_split(dataset, [0.8, 0.2], torch.Generator().manual_seed(0))  # split once"
    is_split = how != "by index" and all(base(train.dataset) is base(vals[0][0].dataset) for train in trains)
    place = _doubled(subject, number) if is_split else None
    if vals[0][1] and ("same data set" in how or _read(vals[0][0]) is not vals[0][0].dataset):
        place = vals[0][1][0]
    place = place or _place(subject, vals[0][0].dataset, vals[0][1])
    yield Finding(TRAIN_VAL_OVERLAP, place, message, fix)


def _read(loader: DataLoader) -> Any:
    """The data set, or the part of it that the loader's sampler draws in every epoch."""
    sampler: Any = loader.sampler
    if isinstance(sampler, RandomSampler | SequentialSampler) or size(loader.dataset) is None:
        return loader.dataset
    drawn = sorted(sampler)
    is_part = len(drawn) < len(loader.dataset) and drawn == sorted(sampler)  # type: ignore[arg-type]  # it has a size
    return Subset(loader.dataset, drawn) if is_part else loader.dataset


def _share(train: Any, val: Any) -> tuple[float, int, str]:
    """Of the validation samples, those that are training samples too; 0 if it may be chance."""
    if (size(train) or 0) < _FEWEST or (size(val) or 0) < _FEWEST:
        return 0.0, 0, ""
    if train is val:
        return 1.0, len(val), "which are the same data set"
    if (
        base(train) is base(val)
        and isinstance(train, Subset)
        and isinstance(val, Subset)
        and train.dataset is val.dataset
    ):
        same = len(set(map(int, val.indices)) & set(map(int, train.indices)))
        if same:
            return same / len(set(map(int, val.indices))), same, "by index"
    return max(_by_content(train, val), _by_attribute(base(train), base(val)) if train is base(train) else (0.0, 0, ""))


def _by_content(train: Any, val: Any) -> tuple[float, int, str]:
    ours, theirs = _keys(train), _keys(val)
    if len(ours) < _FEWEST or len(theirs) < _FEWEST:
        return 0.0, 0, ""
    found = _compared([item[0] for item in ours], [item[0] for item in theirs], all(item[2] for item in ours + theirs))
    if found[0] > 0:
        return *found, "all of it"
    inputs = _compared([item[1] for item in ours], [item[1] for item in theirs], all(item[2] for item in ours + theirs))
    return *inputs, "by its largest tensor"


def _compared(ours: list[int], theirs: list[int], real: bool) -> tuple[float, int]:
    known = set(ours)
    repeated = 1 - len(known) / len(ours)
    same = sum(key in known for key in theirs)
    share = same / len(theirs)
    if real and repeated > 0.5:  # one thing that every sample holds, such as a grid
        return 0.0, 0
    return (share, same) if share > (0.01 if real else 0.01 + 5 * repeated) else (0.0, 0)


def _keys(dataset: Any) -> list[tuple[int, int, bool]]:
    """For every sample: what identifies it, what identifies its largest leaf, and whether that has real numbers."""
    found, deadline = [], time.monotonic() + _SECONDS
    tensors = whole(dataset)
    numbers = indices(dataset, _SAMPLES if tensors is None else 10 * _SAMPLES)
    if tensors is not None:
        rows = {path: tensor.contiguous().numpy() for path, tensor in tensors.items()}
        return [_key({path: row[number] for path, row in rows.items()}) for number in numbers]
    for number in numbers:
        found.append(_key({path: _numpy(leaf) for path, leaf in leaves(dataset[number]).items()}))
        if time.monotonic() > deadline:
            break
    return found


def _numpy(leaf: Tensor) -> np.ndarray:
    return leaf.contiguous().float().numpy() if str(leaf.dtype) == "torch.bfloat16" else leaf.contiguous().numpy()


def _key(parts: dict[str, Any]) -> tuple[int, int, bool]:
    arrays = {path: np.ascontiguousarray(part) for path, part in parts.items()}
    largest = max(arrays.values(), key=lambda part: part.size, default=np.zeros(0))
    whole_key = hash(tuple((path, part.tobytes()) for path, part in sorted(arrays.items())))
    if largest.size < 4:
        return whole_key, whole_key, _is_real(largest)
    return whole_key, hash((largest.shape, largest.tobytes())), _is_real(largest)


def _is_real(part: np.ndarray) -> bool:
    """Whether equality by chance is out of the question: four or more different numbers that are not whole."""
    return part.dtype.kind == "f" and part.size >= 4 and len(np.unique(part[part != np.round(part)].flat[:64])) >= 4


def _by_attribute(train: Dataset, val: Dataset) -> tuple[float, int, str]:
    """For data sets of one class that keep an array with a row a sample, beneath any augmentation."""
    if type(train) is not type(val) or train is val or not hasattr(train, "__dict__"):  # as a list
        return 0.0, 0, ""
    for name, value in vars(train).items():
        ours, theirs = array(value), array(vars(val).get(name))
        if ours is None or theirs is None or not ours.ndim or not theirs.ndim or ours[0].size < 4:
            continue
        if len(ours) != size(train) or len(theirs) != size(val) or ours is theirs:
            continue
        rows = [[hash(np.ascontiguousarray(row).tobytes()) for row in rows[:20000]] for rows in (ours, theirs)]
        real = all(_is_real(row) for row in [*ours[:20], *theirs[:20]])
        share, same = _compared(rows[0], rows[1], real)
        if share > 0:
            return share, same, f"by the rows of {name}"
    return 0.0, 0, ""


def _doubled(subject: Subject, number: int) -> Place | None:
    """The line after which as many rows of an array are there twice: where the data were one, they are split later."""

    def is_doubled(rows: np.ndarray, _: Any) -> bool:  # pragma: no cover - a tracer is not traced
        if rows.ndim < 2 or not number < len(rows) < 10**5 or rows.size > 10**7 or not _is_real(rows[0]):
            return False
        return len(rows) - len({row.tobytes() for row in np.ascontiguousarray(rows)}) >= number

    return first_line(subject, is_doubled)


def _place(subject: Subject, dataset: Any, places: list[Place]) -> Place | None:
    """The split that the validation data come from: the nearest slice or call that takes a part of something."""
    made = blame.dataset_line(subject, dataset)
    if made is None:
        return places[0] if places else None
    place, statement = made
    steps = source.feeding(place.file, statement)
    for step in steps:
        slices = any(isinstance(node, ast.Slice) for node in ast.walk(step))
        if slices or next(source.calls(step, *_SPLITS), None) is not None:
            return Place(place.file, step.lineno)
    return place
