"""Training data that come ordered by class."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler
from torch.utils.data.dataloader import DataLoader

from playbook.doctor import blame
from playbook.doctor.findings import Defect, Evidence, Finding
from playbook.doctor.samples import class_leaf, epoch, leaves, train_loaders, whole
from playbook.doctor.subject import Subject

TRAIN_NOT_SHUFFLED = Defect(
    "train-not-shuffled",
    "warning",
    "Each step sees few classes and undoes what the last one learned.",
    shown_by=Evidence("measured", "the labels were read in the order of the training loader"),
)
DEFECTS = (TRAIN_NOT_SHUFFLED,)

_SECONDS = 0.7
_DRAWN = 50  # batches
_NEIGHBOURS = 0.95  # of the steps from a sample to the next in a batch: an order may begin anywhere and come round


def shuffling(subject: Subject) -> Iterator[Finding | str]:
    """Counts how often the class changes from one sample to the next, against what a random order would give.

    Ordered by class: changes below a tenth of those of a random order while the samples within a batch differ less
    often too, or below half while those within a batch differ less than half as often. A loader without a shuffle
    whose data are already mixed is fine, and so is a sampler of the user's, who then meant the order; but not one whose
    batches are neighbours in the data.
    """
    loaders = [loader for loader in train_loaders(subject) if _in_order(loader)]
    if not loaders or len(train_loaders(subject)) > 1:
        yield "the training loader has a random order, or one of the user's own"
        return
    found = _labels(subject)
    if found is None or len(found) < 3:
        return
    labels = torch.cat(found)
    _, counts = labels.unique(return_counts=True)
    if len(counts) < 2 or labels.numel() < 4 * len(counts):
        return
    differ = 1 - (counts / labels.numel()).square().sum().item()
    changes = (labels[1:] != labels[:-1]).double().mean().item() / differ
    within = torch.tensor([_mixed(part) for part in found if part.numel() > 1]).mean().item() / differ
    if (changes < 0.1 and within < 0.9) or (changes < 0.5 and within < 0.5):
        classes = torch.tensor([len(part.unique()) for part in found]).double().mean().item()
        message = (
            f"the class changes {changes:.1%} as often as in a random order: "
            f"a batch has {classes:.1f} of {len(counts)} classes on average"
        )
        made = blame.loaders(subject, "train")
        place = blame.option(made[0][1], "shuffle" if loaders[0].batch_size else "batch_sampler")[0] if made else None
        fix = "DataLoader(dataset, batch_size=…, shuffle=True)"
        if isinstance(loaders[0].dataset, IterableDataset):
            fix = "# mix the classes in __iter__, or keep a buffer of samples and draw from it at random"
        yield Finding(TRAIN_NOT_SHUFFLED, place, message, fix)
    else:
        yield f"classes are mixed in the training data's order ({changes:.0%} of the changes of a random order)"


def _in_order(loader: DataLoader) -> bool:
    if isinstance(loader.dataset, IterableDataset):
        return True
    if loader.batch_sampler is None:  # a whole graph at a time
        return False
    if type(loader.batch_sampler) is BatchSampler and type(loader.batch_sampler.sampler) is SequentialSampler:
        return True
    drawn = [np.asarray(indices) for indices in itertools.islice(loader.batch_sampler, _DRAWN)]
    if not drawn or any(indices.ndim != 1 or indices.dtype.kind != "i" for indices in drawn):
        return False
    steps = np.concatenate([np.abs(np.diff(indices)) for indices in drawn])
    return len(steps) > 0 and bool(np.mean(steps == 1) > _NEIGHBOURS)


def _mixed(labels: Tensor) -> float:
    """How often two samples of a batch differ."""
    _, counts = labels.unique(return_counts=True)
    number = labels.numel()
    return 1 - (counts * (counts - 1)).sum().item() / (number * (number - 1))


def _labels(subject: Subject) -> list[Tensor] | None:
    """The class of every sample, a tensor a batch, in the loader's order."""
    found = class_leaf(subject)
    path = found[0] if found is not None else _used(subject)
    if path is None:
        return None
    loader = train_loaders(subject)[0]
    tensors = whole(loader.dataset)
    if tensors is not None and path in tensors and tensors[path].dim() and loader.batch_size:
        return list(tensors[path].flatten().split(loader.batch_size))
    return [leaves(batch)[path].flatten() for batch in epoch(subject, _SECONDS) if path in leaves(batch)]


def _used(subject: Subject) -> str | None:
    """For losses that are written by hand: whole numbers of few values, one a sample, that the step computes with."""
    batch = subject.batches[0]
    step = subject.attempt()
    if any(step.is_from_data(loss.target) for loss in step.losses):
        return None
    tensors = leaves(batch)
    rows = max((len(leaf) for leaf in tensors.values() if leaf.dim()), default=0)
    for path, leaf in tensors.items():
        if leaf.dim() != 1 or len(leaf) != rows or leaf.is_floating_point() or leaf.max() > rows:
            continue
        if any(_same(item, leaf) and op.name != "embedding" for op in step.record.ops for item in op.inputs):
            return path
    return None


def _same(tensor: Any, leaf: Tensor) -> bool:
    return tensor.data_ptr() == leaf.data_ptr() and tensor.shape == leaf.shape
