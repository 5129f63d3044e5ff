"""Training samples among the validation or test data."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, Subset

from torchdoctor import source
from torchdoctor.evidence import origins, replay
from torchdoctor.evidence.contents import BY_INDEX, FEWEST, SAME_DATASET, has_real_values, shared_samples
from torchdoctor.evidence.copies import Copies, find_copies
from torchdoctor.evidence.overlapping_windows import count_overlapping_windows
from torchdoctor.evidence.samples import dataset_size, loader_owner, train_loaders, underlying_dataset
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.subject import Subject

TRAIN_VAL_OVERLAP = Defect(
    "train-val-overlap",
    "critical",
    "Validation measures what was learned by heart.",
    long=True,
    shown_by=Evidence("measured", "the samples of training and validation were compared by content"),
)
COPIED_SAMPLES = Defect(
    "copied-samples",
    "warning",
    "Scores of samples that were trained on are too good.",
    long=True,
    shown_by=Evidence("measured", "the samples of training and evaluation were compared, without augmentation"),
)

_SPLITS = ("random_split", "train_test_split", "Subset", "permutation", "randperm", "sample", "iloc")


def overlap(subject: Subject, most: float = 0.8) -> Iterator[Finding | str]:
    """Compares samples by content, and parts of one data set by index.

    Where augmentation hides what is the same, arrays are compared that both data sets keep, files, and samples that
    are read without it. Several loaders of which one is apart are legitimate, and so is one data set that a method
    switches between its parts. Windows of a series that overlap, and are split at random, have most of their steps in
    common.

    Args:
        subject: the training that has just begun.
        most: share of the windows; where a series is split by time, those next to the border alone share steps.
    """
    trains, vals = train_loaders(subject), origins.loaders(subject, "val")
    said = [*_of_validation(subject, trains, vals, most)]
    tests = origins.loaders(subject, "test")  # after the others: it may set the data up again
    is_found = any(isinstance(item, Finding) for item in said)
    kinds = [("test", tests)] if is_found else [("validation", vals), ("test", tests)]
    copies_by_kind = {kind: _copied(subject, trains, others, kind) for kind, others in kinds}
    if copies_by_kind.get("validation") is None:
        yield from said
    copied = [finding for finding in copies_by_kind.values() if finding is not None]
    if copied:  # at one place, of which one finding is reported
        yield replace(copied[0], message="; ".join(finding.message for finding in copied))


PROBE = Probe(look=overlap, defects=(TRAIN_VAL_OVERLAP, COPIED_SAMPLES))


def _of_validation(
    subject: Subject, trains: list[DataLoader], vals: list[tuple[DataLoader, list[Place]]], most: float
) -> Iterator[Finding | str]:
    if not trains or not vals or any(_is_one_dataset(train, val) for train in trains for val, _ in vals):
        return
    shares = [
        max(shared_samples(_sampled_dataset(train), _sampled_dataset(val)) for train in trains) for val, _ in vals
    ]
    if not min(shares)[0]:
        finding = _overlapping_windows(subject, trains, vals, most)
        sizes = [dataset_size(loader.dataset) or 0 for loader in (*trains, *(val for val, _ in vals))]
        if finding is not None:
            yield finding
        elif min(sizes) >= FEWEST and not any(number for _, number, _ in shares):
            yield "no validation sample is in the training data"
        return
    share, number, how = max(shares)
    message = f"{number} of {round(number / share)} validation samples ({share:.0%}) are also training samples, {how}"
    fix = "train_set, val_set = random_split(dataset, [0.8, 0.2], torch.Generator().manual_seed(0))  # split once"
    dataset, places = vals[0][0].dataset, vals[0][1]
    place = next(iter(places), None)
    if place is None or (how != SAME_DATASET and _sampled_dataset(vals[0][0]) is dataset):
        is_split = how != BY_INDEX and all(
            underlying_dataset(train.dataset) is underlying_dataset(dataset) for train in trains
        )
        place = (_duplicating_line(subject, number) if is_split else None) or _split(subject, dataset) or place
    yield Finding(TRAIN_VAL_OVERLAP, place, message, fix)


def _copied(
    subject: Subject, trains: list[DataLoader], others: list[tuple[DataLoader, list[Place]]], kind: str
) -> Finding | None:
    """Samples of every loader of a kind that are copies of training samples."""
    if not trains or not others or any(_is_one_dataset(train, other) for train in trains for other, _ in others):
        return None
    nothing = Copies(0, 1, "", "")
    copies = [
        max(
            (find_copies(_sampled_dataset(train), _sampled_dataset(other), kind) or nothing for train in trains),
            key=Copies.share,
        )
        for other, _ in others
    ]
    least = min(copies, key=Copies.share)
    if not least.number:
        return None
    dataset, places = others[copies.index(least)]
    made_by = source.definition(type(loader_owner(subject)))
    near = (place for place in places if made_by is None or place.file == made_by.file)
    place = _split(subject, dataset.dataset) or next(near, made_by)
    how = f"{least.number} of {least.of} {kind} samples are {least.how} of training samples"
    fix = "# leave copies of training samples out of the other splits, then evaluate again"
    return Finding(COPIED_SAMPLES, place, f"{how}, such as {least.example}", fix)


def _is_one_dataset(train: DataLoader, val: DataLoader) -> bool:
    """Whether both have one data set, of which a method sets what it gives, as `set_mode("train")` does."""
    dataset = underlying_dataset(train.dataset)
    if dataset is not underlying_dataset(val.dataset):
        return False
    trees = [class_body[1] for cls in source.classes_of(dataset) if (class_body := source.body(cls)) is not None]
    methods = [node for tree in trees for node in ast.iter_child_nodes(tree) if isinstance(node, ast.FunctionDef)]
    reading = [node for method in methods if method.name in ("__getitem__", "__len__") for node in ast.walk(method)]
    read = {ast.unparse(node) for node in reading if isinstance(node, ast.Attribute)}
    return any(not read.isdisjoint(_set_by(method)) for method in methods if not method.name.startswith("_"))


def _set_by(method: ast.FunctionDef) -> set[str]:
    """What a method sets to one of its arguments."""
    names = {argument.arg for argument in method.args.args}
    assigned = [node for node in ast.walk(method) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)]
    return {ast.unparse(node.targets[0]) for node in assigned if ast.unparse(node.value) in names}


def _overlapping_windows(
    subject: Subject, trains: list[DataLoader], vals: list[tuple[DataLoader, list[Place]]], most: float
) -> Finding | None:
    """What nearly all validation windows of a series share with training windows."""
    counts = [
        max(count_overlapping_windows(_sampled_dataset(train), _sampled_dataset(val)) for train in trains)
        for val, _ in vals
    ]
    number, of = min(counts, key=lambda pair: pair[0] / max(1, pair[1]))
    if not number or number < most * of:
        return None
    message = f"{number} of {of} validation windows have half of their steps in training windows: they overlap"
    place = _split(subject, vals[0][0].dataset) or next(iter(vals[0][1]), None)
    return Finding(TRAIN_VAL_OVERLAP, place, message, "# split the series by time first, then cut the windows")


def _sampled_dataset(loader: DataLoader) -> Any:
    """The data set, or the part of it that the loader's sampler draws in every epoch."""
    sampler: Any = loader.sampler
    if isinstance(sampler, RandomSampler | SequentialSampler) or dataset_size(loader.dataset) is None:
        return loader.dataset
    drawn = sorted(sampler)
    is_part = len(drawn) < len(loader.dataset) and drawn == sorted(sampler)  # type: ignore[arg-type]  # it has a size
    return Subset(loader.dataset, drawn) if is_part else loader.dataset


def _duplicating_line(subject: Subject, number: int) -> Place | None:
    """The line after which as many rows of an array are there twice: where the data were one, they are split later."""

    def is_doubled(rows: np.ndarray, _: Any) -> bool:  # pragma: no cover - a tracer is not traced
        if rows.ndim < 2 or not number < len(rows) < 10**5 or rows.size > 10**7 or not has_real_values(rows[0]):
            return False
        return len(rows) - len({row.tobytes() for row in rows}) >= number

    return replay.first_line(subject, is_doubled)


def _split(subject: Subject, dataset: Any) -> Place | None:
    """The split that the validation data come from: the nearest slice or call that takes a part of something."""
    creation = origins.dataset_line(subject, dataset)
    if creation is None:
        return None
    place, statement = creation
    for step in source.feeding(place.file, statement):
        has_slice = any(isinstance(node, ast.Slice) for node in ast.walk(step))
        if has_slice or next(source.calls(step, *_SPLITS), None) is not None:
            return Place(place.file, step.lineno)
    return place
