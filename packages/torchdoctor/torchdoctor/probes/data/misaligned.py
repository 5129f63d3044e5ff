"""Labels in another order than the inputs."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from torchdoctor import source
from torchdoctor.evidence import replay
from torchdoctor.evidence.association import SAMPLES, STRONG_ASSOCIATION, association_strength, features
from torchdoctor.evidence.collation import ORDERS, ordering_line, reordered_fields
from torchdoctor.evidence.pairs import FEWEST, Training, candidates, pairs_by_name, pairs_together, share_of_kept_labels
from torchdoctor.evidence.samples import all_samples, epoch_batches, leaves, loader_owner, target_paths, train_loaders
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.batches import num_samples
from torchdoctor.running.subject import Subject

MISALIGNED_LABELS = Defect(
    "misaligned-labels",
    "critical",
    "Labels belong to other samples: there is nothing to learn.",
    explains=("loss-not-decreasing",),
    long=True,
    shown_by=Evidence("experiment", "simple learners predicted the labels, with other orders of the data"),
)

_SECONDS = 0.3
_LISTED = (*ORDERS, "sort_values", "sort_index", "listdir", "scandir", "iterdir", "glob", "rglob", "set")
_AS_IN_THE_END = 0.95  # of the labels beside the same inputs

Beside = tuple[float, float | None]  # how strongly labels are told from inputs; the share that the training's are


def misaligned(subject: Subject, deviations: float = 6.0) -> Iterator[Finding | str]:
    """Tests with two simple learners whether inputs predict labels; if not, whether they did earlier in the setup.

    Nearest neighbours and a linear fit predict the training labels from the inputs. Where they hardly do better than
    chance (below 6 standard deviations), the data are made again line by line. If inputs and labels stood side by side
    there that tell of each other (above 8), if the training inputs are those inputs, and if most have another label
    now, then the order was lost on the way. Labels that could not be told from the start are not reported.

    The place is the line after which inputs stand beside labels that cannot be told; or the one line that sorts,
    shuffles or lists names, between the last at which they could be told and that one, in any function.

    Before that, a collate function of the user's own gets some samples together and each alone: what it puts in another
    order, it must put in the same order everywhere.

    Args:
        subject: the training that has just begun.
        deviations: standard deviations over chance that inputs tell nothing below.
    """
    for loader in train_loaders(subject):
        if (paths := reordered_fields(loader)) is not None:
            message = f"collate_fn leaves two parts of a batch in different orders: {paths[0]} and {paths[1]}"
            fix = "return x[order], y[order]  # one order for all parts"
            yield Finding(MISALIGNED_LABELS, ordering_line(loader.collate_fn), message, fix)
            return
    training = _training(subject)
    if training is None:
        return
    final = association_strength(features(training.inputs), training.labels)
    if final > deviations:
        strength = f"{final:.0f} standard deviations over chance" if math.isfinite(final) else "of every sample"
        yield f"inputs tell of labels ({strength})"
        return
    associated, place = _disordering_line(subject, training, deviations)
    counts = np.unique(training.labels, return_counts=True)[1]
    chance = counts.max() / counts.sum()
    if associated and place is not None and min(share or 0.0 for _, share in associated) <= chance + 0.3 * (1 - chance):
        before, share = associated[0]
        message = f"only {share:.0%} of the inputs have the label that stood beside them when they could be told apart"
        message += f" ({before:.0f} standard deviations over chance then, {max(0.0, final):.0f} now)"
        fix = "order = rng.permutation(len(x)); x, y = x[order], y[order]  # one order for both"
        yield Finding(MISALIGNED_LABELS, place, message, fix)


PROBE = Probe(look=misaligned, defects=(MISALIGNED_LABELS,))


def _training(subject: Subject) -> Training | None:
    """Inputs as rows of numbers, and the labels, of some training samples, each once."""
    loaders = train_loaders(subject)
    if not subject.batches or len(loaders) != 1:
        return None
    batch = leaves(subject.batches[0])
    losses = [loss for loss in subject.attempt().losses if loss.target.numel() == loss.target.shape[:1].numel()]
    labels = next((paths for loss in losses if (paths := target_paths(loss, subject.batches[0]))), [])
    inputs = [path for path, leaf in batch.items() if path not in labels and leaf.dim() > 1]
    if not labels or not inputs:
        return None
    main = max(inputs, key=lambda path: batch[path].numel())
    rows: dict[bytes, tuple[np.ndarray, Any]] = {}  # a sampler may take one twice
    number = sum(num_samples(batch) or 0 for batch in subject.batches)
    for later in map(leaves, subject.batches if number >= SAMPLES else epoch_batches(subject, _SECONDS)):
        if main in later and later[main].shape[1:] == batch[main].shape[1:]:
            pairs = zip(later[main].numpy(), later[labels[0]].flatten().numpy(), strict=False)
            rows |= {x.tobytes(): (x, y) for x, y in pairs}
        if len(rows) >= SAMPLES:
            break
    if len(rows) < FEWEST:
        return None
    known = (all_samples(loaders[0].dataset) or {}).get(labels[0])
    x, y = (np.stack(column) for column in zip(*rows.values(), strict=True))
    return Training(x, y, None if known is None else known.flatten().numpy())


def _disordering_line(subject: Subject, training: Training, deviations: float) -> tuple[list[Beside], Place | None]:
    """The pairs that still predicted labels, and the line after which they no longer do."""
    associated: list[Beside] = []
    since: list[Place] = []  # lines after those at which labels could be told
    lost: list[Place] = []
    known: dict[Any, Beside] = {}

    def compare(x: np.ndarray, y: np.ndarray) -> Beside:  # pragma: no cover - a tracer is not traced
        key = (x.shape, x[:64].tobytes(), y[:512].tobytes())
        if key not in known:
            signal = association_strength(features(x), y)
            known[key] = signal, share_of_kept_labels(x, y, training) if np.isfinite(signal) else None
        return known[key]

    def see(place: Place, local: dict[str, Any]) -> bool:  # pragma: no cover - a tracer is not traced
        inputs, labels = candidates(local, training)
        beside = [compare(x, y) for x in inputs for y in labels if len(x) == len(y)]
        since[:] = [] if any(map(_is_associated, beside)) else [*since, place]
        associated.extend(filter(_is_associated, beside))
        associated.extend(filter(_is_associated, [compare(x, y) for x, y in pairs_by_name(local, training)]))
        weak = min(deviations, associated[0][0] / 3) if associated else 0.0
        groups = [beside, *([compare(x, y)] for x, y in pairs_together(local, training))]
        groups += [[pair] for pair in beside if (pair[1] or 0.0) > _AS_IN_THE_END]
        lost.extend(place for group in groups if group and max(signal for signal, _ in group) < weak)
        return bool(lost)

    replay.trace_lines(replay.rebuild_data(subject), see)
    dataset = train_loaders(subject)[0].dataset
    read = source.definition(getattr(type(dataset), "__getitem__", None))
    place = _reordering_line(since) or next(
        iter(lost), read or source.definition(type(loader_owner(subject)).train_dataloader)
    )
    return associated, place


def _is_associated(beside: Beside) -> bool:
    return beside[0] > STRONG_ASSOCIATION and beside[1] is not None


def _reordering_line(lines: list[Place]) -> Place | None:
    """The one among these lines that puts something in an order."""
    calls = {
        Place(file, call.lineno)
        for file, line in set(lines)
        for call in source.calls(source.tree(file), *_LISTED)
        if call.lineno <= line <= (call.end_lineno or 0)
    }
    return calls.pop() if len(calls) == 1 else None
