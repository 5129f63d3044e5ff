"""Labels that were put in another order than the inputs."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import TensorDataset

from playbook.doctor import replay, source
from playbook.doctor.arrays import FEWEST, candidates, pairs_by_name, share_of_kept_labels
from playbook.doctor.association import SAMPLES, STRONG, association, features
from playbook.doctor.batches import num_samples
from playbook.doctor.collation import ORDERS, ordering, torn
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.samples import copies, epoch, leaves, owner, train_loaders, whole
from playbook.doctor.subject import Subject

MISALIGNED_LABELS = Defect(
    "misaligned-labels",
    "critical",
    "Labels belong to other samples: there is nothing to learn.",
    explains=("loss-not-decreasing",),
    long=True,
    shown_by=Evidence("experiment", "simple learners predicted the labels, with other orders of the data"),
)
DEFECTS = (MISALIGNED_LABELS,)

_SECONDS = 0.3
_LISTED = (*ORDERS, "sort_values", "sort_index", "listdir", "scandir", "iterdir", "glob", "rglob", "set")
_PAIRS = (TensorDataset, tuple)  # of inputs and labels
_AS_IN_THE_END = 0.95  # of the labels beside the same inputs
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
        if (paths := torn(loader)) is not None:
            message = f"collate_fn leaves two parts of a batch in different orders: {paths[0]} and {paths[1]}"
            fix = "return x[order], y[order]  # one order for all parts"
            yield Finding(MISALIGNED_LABELS, ordering(loader.collate_fn), message, fix)
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


def _pairs(subject: Subject) -> tuple[np.ndarray, np.ndarray, np.ndarray | None] | None:
    """Inputs as rows of numbers, and the labels, of some training samples; all labels, if at hand."""
    if not subject.batches or len(train_loaders(subject)) != 1:
        return None
    batch = subject.batches[0]
    for loss in subject.attempt().losses:
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
        if number < FEWEST or any(len(a) != len(b) for a, b in zip(rows, labels, strict=True)):
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
        inputs, labels = candidates(local, values, everything)
        seen = [_compared(known, a, b, x, y) for a in inputs for b in labels if len(a) == len(b)]
        since.append(place)
        for signal, kept in seen:
            if signal > STRONG and kept is not None:
                strong.append((signal, kept))
                since.clear()
        for a, b in pairs_by_name(local):
            inputs, labels = candidates({"": (a, b)}, values, everything)
            told = [_compared(known, inputs[0], labels[0], x, y)] if inputs and labels else []
            strong.extend((signal, kept) for signal, kept in told if signal > STRONG and kept is not None)
        parts = [thing for thing in replay.parts(local.values()) if isinstance(thing, _PAIRS)]
        made = [candidates({"": getattr(part, "tensors", part)}, values, everything) for part in parts]
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
        known[key] = (signal, share_of_kept_labels(a, b, x, y) if np.isfinite(signal) else None)
    return known[key]


def _taken(subject: Subject) -> Place | None:
    dataset = train_loaders(subject)[0].dataset
    method = getattr(type(dataset), "__getitem__", None)
    return source.definition(method) or source.definition(type(owner(subject)).train_dataloader)
