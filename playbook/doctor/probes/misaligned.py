"""Labels that were put in another order than the inputs."""

import copy
import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from playbook.doctor import replay, source
from playbook.doctor.association import SAMPLES, STRONG, association, features
from playbook.doctor.batches import num_samples, padded
from playbook.doctor.findings import Defect, Finding, Place
from playbook.doctor.losses import losses
from playbook.doctor.samples import copies, epoch, leaves, observe, owner, size, train_loaders, whole
from playbook.doctor.subject import Subject

MISALIGNED_LABELS = Defect(
    "misaligned-labels",
    "critical",
    "Labels belong to other samples: there is nothing to learn.",
    explains=("loss-not-decreasing",),
    long=True,
)
DEFECTS = (MISALIGNED_LABELS,)

_FEWEST, _SECONDS = 60, 0.3
_TOGETHER = 12  # samples for the collate function
_LEFT_OUT = 8  # of the least and of the largest labels
_ORDERS = ("sort", "argsort", "sorted", "randperm", "permutation", "shuffle", "sample")
_LISTED = (*_ORDERS, "sort_values", "sort_index", "listdir", "scandir", "iterdir", "glob", "rglob", "set")
_PAIRS = (TensorDataset, tuple)  # of inputs and labels
_SAME_CLASSES, _AS_IN_THE_END = 0.9, 0.95  # of the labels beside the same inputs
_WEAK = 6.0  # standard deviations over chance


def misaligned(subject: Subject) -> Iterator[Finding | str]:
    """Asks two simple learners whether inputs tell anything of labels; if not, whether the same inputs once did.

    Nearest neighbours and a linear fit predict the training labels from the inputs. Where they hardly do better than
    chance (below 6 standard deviations), the data are made again line by line. If inputs and labels stood side by side
    there that tell of each other (above 8), if the training inputs are those inputs, and if most have another label
    now, then the order was lost on the way. Labels that could not be told from the start are not reported.

    The place is the line after which inputs stand beside labels that cannot be told; or the one line that sorts,
    shuffles or lists names, between the last at which they could be told and that one, in any function.

    Before that, a collate function of the user's own gets some samples together and each alone: what it puts in another
    order, it must put in the same order everywhere.
    """
    for loader in train_loaders(subject):
        if (paths := _torn(loader)) is not None:
            message = f"collate_fn leaves two parts of a batch in different orders: {paths[0]} and {paths[1]}"
            fix = "return x[order], y[order]  # one order for all parts"
            yield Finding(MISALIGNED_LABELS, _ordering(loader.collate_fn), message, fix)
            return
    pairs = _pairs(subject)
    if pairs is None:
        return
    x, y, everything = pairs
    final = association(features(x), y)
    if final > _WEAK:
        yield f"inputs tell of labels ({final:.0f} standard deviations over chance)"
        return
    found = _lost(subject, x, y, everything)
    if found is not None:
        place, before, kept = found
        message = f"only {kept:.0%} of the inputs have the label that stood beside them when they could be told apart"
        message += f" ({before:.0f} standard deviations over chance then, {max(0.0, final):.0f} now)"
        fix = "order = rng.permutation(len(x)); x, y = x[order], y[order]  # one order for both"
        yield Finding(MISALIGNED_LABELS, place, message, fix)


def _torn(loader: DataLoader) -> tuple[str, str] | None:
    """Two parts of a batch whose rows are in different orders, as the user's collate function leaves them."""
    number = min(_TOGETHER, size(loader.dataset) or 0)
    if loader.batch_sampler is None or _ordering(loader.collate_fn) is None or number < 4:
        return None
    samples = [loader.dataset[index] for index in range(number)]
    try:
        together = leaves(padded(loader.collate_fn(copy.deepcopy(samples))))
        alone = [leaves(padded(loader.collate_fn([copy.deepcopy(sample)]))) for sample in samples]
    except Exception:  # it may need more than one sample; if it always fails, another probe tells
        return None
    rows = {path: leaf for path, leaf in together.items() if leaf.dim() and len(leaf) == number}
    matches = {
        path: np.array([[_begins(row, one[path][0]) for row in leaf] for one in alone])  # (sample, row)
        for path, leaf in rows.items()
        if all(path in one and len(one[path]) == 1 for one in alone)
    }
    for path, match in matches.items():
        order = match.argmax(axis=1)
        if (match.sum(axis=1) != 1).any() or (order == np.arange(number)).all():
            continue
        for other, fits in matches.items():
            if fits.diagonal().all() and not fits[np.arange(number), order].all():
                return path, other
    return None


def _begins(row: Tensor, one: Tensor) -> bool:
    """Whether a row is a sample, perhaps padded."""
    if row.dim() != one.dim() or any(length < own for length, own in zip(row.shape, one.shape, strict=True)):
        return False
    return torch.equal(row[tuple(slice(length) for length in one.shape)], one)


def _ordering(collate: Any) -> Place | None:
    """The line of a function of the user's that makes an order, or its own."""
    collate = getattr(collate, "func", collate)
    function = collate if inspect.isroutine(collate) else type(collate).__call__
    place = source.definition(function)
    return place and (source.first_call([function], *_ORDERS) or place)


def _pairs(subject: Subject) -> tuple[np.ndarray, np.ndarray, np.ndarray | None] | None:
    """Inputs as rows of numbers, and the labels, of some training samples; all labels, if at hand."""
    if not subject.batches or len(train_loaders(subject)) != 1:
        return None
    batch = subject.batches[0]
    record, _ = observe(subject, batch)
    for loss in losses(record):
        paths = copies(loss, batch)
        if not paths or loss.target.numel() != loss.target.shape[:1].numel():
            continue
        tensors = leaves(batch)
        inputs = [path for path, leaf in tensors.items() if path not in paths and leaf.dim() > 1]
        if not inputs:
            return None
        main = max(inputs, key=lambda path: tensors[path].numel())
        rows, labels, number = [], [], 0
        for later in _batches(subject):
            tensors = leaves(later)
            if main in tensors and tensors[main].shape[1:] == leaves(batch)[main].shape[1:]:
                rows.append(tensors[main].numpy())
                labels.append(tensors[paths[0]].flatten().numpy())
                number += len(rows[-1])
            if number >= SAMPLES:
                break
        if number < _FEWEST or any(len(a) != len(b) for a, b in zip(rows, labels, strict=True)):
            return None
        known = whole(train_loaders(subject)[0].dataset) or {}
        everything = known[paths[0]].flatten().numpy() if paths[0] in known else None
        x = np.concatenate(rows)
        kept = list({row.tobytes(): index for index, row in enumerate(x)}.values())  # a sampler may take one twice
        return x[kept], np.concatenate(labels)[kept], everything
    return None


def _batches(subject: Subject) -> Iterator[Any]:
    """Each sample once."""
    number = sum(num_samples(batch) or 0 for batch in subject.batches)
    yield from subject.batches if number >= SAMPLES else epoch(subject, _SECONDS)


def _lost(
    subject: Subject, x: np.ndarray, y: np.ndarray, everything: np.ndarray | None
) -> tuple[Place, float, float] | None:
    """The line after which labels are others, how well they were told before, and the share that stayed."""
    places: list[Place] = []
    since: list[Place] = []  # lines after those at which labels could be told
    strong: list[tuple[float, float]] = []  # how strong, and how many of the training samples have the same label
    values = set(np.unique(y).tolist())
    known: dict[Any, tuple[float, float | None]] = {}

    def see(place: Place, local: dict[str, Any]) -> bool:  # pragma: no cover - a tracer is not traced
        inputs, labels = _candidates(local, values, everything)
        seen = [_compared(known, a, b, x, y) for a in inputs for b in labels if len(a) == len(b)]
        since.append(place)
        for signal, kept in seen:
            if signal > STRONG and kept is not None:
                strong.append((signal, kept))
                since.clear()
        for a, b in _by_name(local):
            inputs, labels = _candidates({"": (a, b)}, values, everything)
            told = [_compared(known, inputs[0], labels[0], x, y)] if inputs and labels else []
            strong.extend((signal, kept) for signal, kept in told if signal > STRONG and kept is not None)
        parts = [thing for thing in replay.parts(local.values()) if isinstance(thing, _PAIRS)]
        made = [_candidates({"": getattr(part, "tensors", part)}, values, everything) for part in parts]
        for found in (seen, *([_compared(known, a[0], b[0], x, y)] for a, b in made if a and b)):
            if found and strong and max(signal for signal, _ in found) < _weak(strong):
                places.append(place)
        for signal, kept in seen:  # as they end, though others are still beside them
            if strong and signal < _weak(strong) and (kept or 0.0) > _AS_IN_THE_END:
                places.append(place)
        return bool(places)

    replay.lines(replay.remake(subject), see)
    chance = (np.unique(y, return_counts=True)[1] / len(y)).max()
    if not strong or min(kept for _, kept in strong) > chance + 0.3 * (1 - chance):
        return None
    place = _reordering(since) or (places[0] if places else _taken(subject))  # between the last line and the batch
    return (place, *strong[0]) if place is not None else None


def _weak(strong: list[tuple[float, float]]) -> float:
    """Below this, labels cannot be told any more."""
    return min(_WEAK, strong[0][0] / 3)


def _reordering(lines: list[Place]) -> Place | None:
    """The one among these lines that puts something in an order."""
    found = set()
    for file, line in set(lines):
        for call in source.calls(source.tree(file), *_LISTED):
            if call.lineno <= line <= (call.end_lineno or 0):
                found.add(Place(file, call.lineno))
    return found.pop() if len(found) == 1 else None


def _compared(
    known: dict[Any, Any], a: np.ndarray, b: np.ndarray, x: np.ndarray, y: np.ndarray
) -> tuple[float, float | None]:
    """How well labels b are told from inputs a, and how many of x that are among a have the label in y that b has."""
    key = (a.shape, hash(a[:64].tobytes()), hash(b[:512].tobytes()))
    if key not in known:
        signal = association(features(a), b)
        known[key] = (signal, _kept(a, b, x, y) if np.isfinite(signal) else None)
    return known[key]


def _kept(a: np.ndarray, b: np.ndarray, x: np.ndarray, y: np.ndarray) -> float | None:
    """The share of equal labels among rows of x that are rows of a, shifted and scaled by column or as a whole."""
    ours, theirs = (part.reshape(len(part), -1).astype(np.float64) for part in (x, a[:3000]))
    if ours.shape[1] != theirs.shape[1]:
        return None
    whole = [(part - part.mean()) / (part.std() + 1e-12) for part in (ours, theirs)]
    columns = [(part - part.mean(0)) / (part.std(0) + 1e-6) for part in (ours, theirs)]
    for left, right in ((whole[0][:200], whole[1]), (columns[0][:200], columns[1])):
        distances = torch.cdist(torch.from_numpy(left), torch.from_numpy(right))
        least, index = distances.min(dim=1)
        same = (least < 0.25 * distances.median(dim=1).values).numpy()
        if same.mean() > 0.8:
            found = b[index.numpy()]
            if not (y % 1).any() and np.isin(found[same], y).mean() < _SAME_CLASSES:
                return None  # other labels, of more classes
            return float(np.isclose(found, y[:200], atol=1e-3 * y.std())[same].mean())
    return None


def _by_name(local: dict[str, Any]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Inputs and labels that stand under the same names in two dicts, or came one by one; words as numbers."""
    dicts = [thing for thing in local.values() if isinstance(thing, dict) and len(thing) >= _FEWEST]
    for one, other in itertools.permutations(dicts, 2):
        inputs = replay.array(list(one.values())) if len(one) == len(other) else None
        if inputs is None or inputs.ndim < 2:
            continue
        named = [other[name] for name in one] if one.keys() == other.keys() else list(other.values())
        labels = np.unique(named, return_inverse=True)[1] if isinstance(named[0], str) else replay.array(named)
        if labels is not None:
            yield inputs, labels


def _candidates(
    local: dict[str, Any], values: set[Any], everything: np.ndarray | None = None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Arrays with a row a sample, and arrays with the labels' values, perhaps scaled, among what a line knows."""
    inputs, labels = [], []
    continuous = any(value % 1 for value in values)
    for thing in replay.parts(local.values()):
        array = replay.array(thing)
        if array is None or not array.ndim or len(array) < _FEWEST:
            continue
        if array.ndim == 1 or array[0].size == 1:
            found = set(np.unique(array).tolist())
            if found >= values and (continuous or len(found) <= 1.2 * len(values) + 2):
                labels.append(array.reshape(-1))
            elif everything is not None and (scaled := _rescaled(array.reshape(-1), everything)) is not None:
                labels.append(scaled)
        elif array[0].size > 1:
            inputs.append(array)
    return inputs[:6], labels[:6]


def _rescaled(values: np.ndarray, labels: np.ndarray) -> np.ndarray | None:
    """Values on the scale of the labels, if these are the same but for scale, shift, order and some left out."""
    if not len(labels) <= len(values) <= 2 * len(labels) or len(np.unique(labels)) < _FEWEST:
        return None
    low, *_, high = ours = np.sort(labels).astype(np.float64)
    theirs = np.sort(values).astype(np.float64)
    for left, right in itertools.product(theirs[:_LEFT_OUT], theirs[-_LEFT_OUT:]):  # which may be low and high
        scale = (high - low) / (right - left) if right > left else 0.0
        scaled = (theirs - left) * scale + low
        index = np.searchsorted(scaled, ours).clip(1, len(scaled) - 1)
        near = np.minimum(np.abs(scaled[index] - ours), np.abs(scaled[index - 1] - ours))
        if scale and near.max() < 1e-4 * ours.std():
            return (values - left) * scale + low
    return None


def _taken(subject: Subject) -> Place | None:
    dataset = train_loaders(subject)[0].dataset
    method = getattr(type(dataset), "__getitem__", None)
    return source.definition(method) or source.definition(type(owner(subject)).train_dataloader)
