"""Training data that are read ordered by class."""

import itertools
import statistics
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler
from torch.utils.data.dataloader import DataLoader
from torch.utils.data.sampler import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from torchdoctor.evidence import origins
from torchdoctor.evidence.samples import class_leaf, leaves, plain_numbers, read_leaf, target_paths, train_loaders
from torchdoctor.findings import Defect, Evidence, Finding, NotLookedAt, Place
from torchdoctor.probe import Probe
from torchdoctor.running.subject import Subject

TRAIN_NOT_SHUFFLED = Defect(
    "train-not-shuffled",
    "warning",
    "Each step sees few classes and undoes what the last one learned.",
    shown_by=Evidence("measured", "the labels were read in the order of the training loader"),
)

_SECONDS = 0.7
_DRAWN = 50  # batches
_FEWEST = 8  # batches, and samples in each
_FIX = "DataLoader(dataset, batch_size=…, shuffle=True)"
_VALUES = {"variant": "shuffle"}


def shuffling(
    subject: Subject, ordered: float = 0.1, partly: float = 0.5, stretch: float = 0.5, neighbours: float = 0.95
) -> Iterator[Finding | str | NotLookedAt]:
    """Compares how often the class changes between samples with the rate in a random order.

    Ordered by class: changes below a tenth of those of a random order while the samples within a batch differ less
    often too, or below half while those within a batch differ less than half as often. A loader without a shuffle
    whose data are already mixed is fine, and so is a sampler of the user's, who then meant the order; but not one whose
    batches are neighbours in the data. Batches of one sample cannot tell. Values to predict are in order, an advice,
    where half of their variance or more lies between batches, of which a random order has the share 1 / B. A state that
    goes on from batch to batch needs the order.

    Args:
        subject: the training that has just begun.
        ordered: changes of class, as a share of those in a random order.
        partly: the same, where classes also differ less within batches.
        stretch: share of the variance that lies between batches.
        neighbours: share of the steps to the next sample; an order may begin anywhere and come round.
    """
    loaders = train_loaders(subject)
    if len(loaders) != 1:
        return
    if not _is_in_order(loaders[0], neighbours):
        if isinstance(loaders[0].sampler, RandomSampler | SubsetRandomSampler | WeightedRandomSampler):
            yield "the training loader has a random order"
        elif loaders[0].batch_sampler is None:
            yield NotLookedAt(TRAIN_NOT_SHUFFLED, "the training data come as they are, each as a batch")
        else:
            yield "the training loader has an order of the program's own, which is not that of the data"
        return
    yield from _correlated_batches(subject, stretch)
    leaf = class_leaf(subject)
    path = leaf[0] if leaf is not None else _handwritten_labels(subject)
    batches = [labels.flatten() for labels in read_leaf(subject, path, _SECONDS)] if path is not None else []
    labels = torch.cat(batches) if batches else torch.empty(0)
    _, counts = labels.unique(return_counts=True)
    if len(batches) < 3 or len(batches) == len(labels) or len(counts) < 2 or len(labels) < 4 * len(counts):
        return
    differ = 1 - (counts / len(labels)).square().sum().item()
    changes = (labels[1:] != labels[:-1]).double().mean().item() / differ
    within = statistics.mean(_share_of_unequal_pairs(batch) for batch in batches if len(batch) > 1) / differ
    if (changes >= ordered or within >= 0.9) and (changes >= partly or within >= partly):
        yield f"classes are mixed in the training data's order ({changes:.0%} of the changes of a random order)"
        return
    classes = statistics.mean(len(batch.unique()) for batch in batches)
    message = f"the class changes {changes:.1%} as often as in a random order: "
    message += f"a batch has {classes:.1f} of {len(counts)} classes on average"
    fix, values = _FIX, _VALUES
    if isinstance(loaders[0].dataset, IterableDataset):
        fix, values = "# mix the classes in __iter__, or keep a buffer of samples and draw from it at random", {}
    option = "shuffle" if loaders[0].batch_size else "batch_sampler"
    yield Finding(TRAIN_NOT_SHUFFLED, _place(subject, option), message, fix, values)


PROBE = Probe(look=shuffling, defects=(TRAIN_NOT_SHUFFLED,))


def _place(subject: Subject, option: str) -> Place | None:
    """The line of an option of the training loader."""
    return next((origins.option(places, option)[0] for _, places in origins.loaders(subject, "train")), None)


def _correlated_batches(subject: Subject, stretch: float) -> Iterator[Finding]:
    """A finding if each batch has a stretch of a series, whose values are alike, and the step has no state."""
    targets = [loss for loss in subject.attempt().losses if loss.kind == "regression"]
    path = next((path for loss in targets for path in target_paths(loss, subject.batches[0])), None)
    batches = list(read_leaf(subject, path, _SECONDS)) if path is not None else []
    if len(batches) < _FEWEST or any(values.dim() == 0 or len(values) < _FEWEST for values in batches[:-1]):
        return
    samples = [values.double().reshape(len(values), -1).mean(1) for values in batches[:-1]]
    between, total = torch.stack([values.mean() for values in samples]).var(), torch.cat(samples).var()
    if not between > stretch * total or _has_state(subject):
        return
    message = f"{between / total:.0%} of the variance of the values to predict lies between batches"
    message += f", where a random order leaves {1 / len(samples[0]):.0%}"
    impact = "Each step sees one stretch of the data, and the next one another."
    defect = replace(TRAIN_NOT_SHUFFLED, severity="advice", impact=impact)
    yield Finding(defect, _place(subject, "shuffle"), message, _FIX, _VALUES)


def _has_state(subject: Subject) -> bool:
    """Whether a step depends on the batch before, as a recurrent network does that keeps its state."""
    with subject.unchanged():
        first = subject.record(subject.batches[0]).loss
        subject.record(subject.batches[1 % len(subject.batches)])
        again = subject.record(subject.batches[0]).loss
    are_equal = first is None or again is None or torch.equal(first, again)
    return not are_equal or (subject.script is not None and subject.script.carries)


def _is_in_order(loader: DataLoader, neighbours: float) -> bool:
    if isinstance(loader.dataset, IterableDataset):
        return True
    if loader.batch_sampler is None:  # a whole graph at a time
        return False
    if type(loader.batch_sampler) is BatchSampler and type(loader.batch_sampler.sampler) is SequentialSampler:
        return True
    drawn = [plain_numbers(batch) or [] for batch in itertools.islice(loader.batch_sampler, _DRAWN)]
    steps = [abs(one - other) for indices in drawn for one, other in itertools.pairwise(indices)]
    return len(steps) > 0 and steps.count(1) > neighbours * len(steps)


def _share_of_unequal_pairs(labels: Tensor) -> float:
    """How often two samples of a batch differ."""
    _, counts = labels.unique(return_counts=True)
    number = len(labels)
    return 1 - (counts * (counts - 1)).sum().item() / (number * (number - 1))


def _handwritten_labels(subject: Subject) -> str | None:
    """For losses that are written by hand: whole numbers of few values, one a sample, that the step computes with."""
    step = subject.attempt()
    if any(step.is_from_data(loss.target) for loss in step.losses):
        return None
    tensors = leaves(step.batch)
    rows = max((len(leaf) for leaf in tensors.values() if leaf.dim()), default=0)
    for path, leaf in tensors.items():
        is_class = leaf.shape == (rows,) and not leaf.is_floating_point() and leaf.max() <= rows
        if is_class and any(op.name != "embedding" for op in step.record.takers(leaf)):
            return path
    return None
