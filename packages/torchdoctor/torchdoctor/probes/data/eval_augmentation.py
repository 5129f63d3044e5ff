"""Random augmentation of validation and test data."""

from collections.abc import Callable, Iterator
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from torchdoctor.evidence import origins, replay
from torchdoctor.evidence.samples import leaves, spread_indices, train_loaders, underlying_dataset
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.subject import Subject

EVAL_AUGMENTATION = Defect(
    "eval-augmentation",
    "warning",
    "Validation is noisy and not of the data as it is.",
    explains=("eval-nondeterminism",),
    shown_by=Evidence("experiment", "the same validation samples were read twice with other seeds"),
)

_ITEMS = 24
_NUM_MASK_VALUES = 8  # a mask has no more different values

Sample = dict[str, Tensor]  # leaves by path


def eval_augmentation(subject: Subject, share: float = 0.1) -> Iterator[Finding | str]:
    """Reads 24 validation and test samples under two seeds: augmentation changes a leaf of more than 10 % of them.

    Random inputs belong to some tasks: pairs of views, inputs to be restored, masked tokens, sampled negatives. So
    a change counts if the label stays and the step uses it; or, with or without a label, if it only mirrors the input
    or turns its sign, and a target of the same shape alike.

    The place is the line that made the validation data, or the line of the collation or the hook that draws.

    Args:
        subject: the training that has just begun.
        share: of the samples that change.
    """
    looked, same = False, True
    for kind in ("val", "test"):
        for loader, places in origins.loaders(subject, kind):
            numbers = spread_indices(loader.dataset, _ITEMS)
            looked |= bool(numbers) and loader.batch_sampler is not None
            for through, read in _stages(subject, loader, numbers) if numbers else ():
                first, second = (_seeded(seed, read) for seed in (1, 2))
                same &= all(map(_are_same, first, second))
                if (augmented := _augmented(subject, first, second, share)) is not None:
                    path, changed = augmented
                    message = f"{changed} of {len(numbers)} {kind} samples are another input each time they are read"
                    yield Finding(
                        EVAL_AUGMENTATION,
                        _place(subject, loader, places, through, read),
                        f"{message} (leaf {path!r})",
                        _fix(subject, loader, through),
                        {"variant": "condition"} if through == "hook" else {},
                    )
                    return
    if looked and same:
        yield "validation samples are the same each time they are read"


PROBE = Probe(look=eval_augmentation, defects=(EVAL_AUGMENTATION,))


def _stages(
    subject: Subject, loader: DataLoader, numbers: list[int]
) -> Iterator[tuple[str, Callable[[], list[Sample]]]]:
    """Where samples may be augmented, with what reads them as they leave it: the data set, the collation, a hook."""
    yield "dataset", lambda: [leaves(loader.dataset[number]) for number in numbers]
    if loader.batch_sampler is not None and loader.collate_fn is not None:
        collate, items = loader.collate_fn, [loader.dataset[number] for number in numbers[: loader.batch_size or 1]]
        yield "collate", lambda: _rows(collate(list(items)))
        yield "hook", lambda: _rows(subject.transferred(collate(list(items))))


def _seeded(seed: int, read: Callable[[], list[Sample]]) -> list[Sample]:
    pl.seed_everything(seed, verbose=False)
    return [{path: leaf.clone() for path, leaf in sample.items()} for sample in read()]  # the next may be read in place


def _rows(batch: Any) -> list[Sample]:
    tensors = {path: leaf for path, leaf in leaves(batch).items() if leaf.dim()}
    number = min([len(leaf) for leaf in tensors.values()], default=0)
    return [{path: leaf[row] for path, leaf in tensors.items()} for row in range(number)]


def _augmented(subject: Subject, first: list[Sample], second: list[Sample], share: float) -> tuple[str, int] | None:
    """The largest leaf that augmentation changes, and in how many samples."""
    if not first:
        return None
    sample = first[0]
    pairs = {path: [(a[path], b[path]) for a, b in zip(first, second, strict=True) if path in b] for path in sample}
    changes = {path: sum(not _is_equal(a, b) for a, b in pairs[path]) for path in sample}
    inputs = [path for path in sample if changes[path] > share * len(first) and sample[path].numel() > 1]
    if not inputs:
        return None
    main = max(inputs, key=lambda path: sample[path].numel())
    stays = {path: leaf for path, leaf in sample.items() if not changes[path]}
    real = [path for path in inputs if sample[path].is_floating_point()]
    pictures = [path for path in real if len(sample[path].unique()) > _NUM_MASK_VALUES]  # no masks
    images = [sample[path].shape for path in pictures]
    are_views = len(set(images)) < len(images) and not _are_mirrored_alike([pairs[path] for path in pictures])
    is_restored = any(leaf.is_floating_point() and 2 * leaf.numel() >= sample[main].numel() for leaf in stays.values())
    if are_views or is_restored:
        return None
    is_image = main in real or sample[main].dtype == torch.uint8
    are_mirrored = all(a.dim() > 1 and any(_is_equal(turned, b) for turned in _mirrored(a)) for a, b in pairs[main])
    is_changed = are_mirrored or (_is_label_used(subject, stays) and (is_image or _are_mostly_kept(pairs[main])))
    return (main, changes[main]) if is_changed else None


def _is_equal(one: Tensor, two: Tensor) -> bool:
    return one.shape == two.shape and torch.allclose(one.double(), two.double(), rtol=1e-6, atol=1e-7, equal_nan=True)


def _are_same(one: Sample, two: Sample) -> bool:
    return all(path in two and _is_equal(leaf, two[path]) for path, leaf in one.items())


def _mirrored(leaf: Tensor) -> list[Tensor]:
    """A leaf as it is, mirrored, and with the opposite sign (the phase of a sound)."""
    return [leaf, *(leaf.flip(dim) for dim in range(leaf.dim())), *([-leaf] if leaf.is_floating_point() else [])]


def _are_mirrored_alike(leaves_of: list[list[tuple[Tensor, Tensor]]]) -> bool:
    """Whether leaves are mirrored alike in every sample, as an input and its target are; views are drawn one by one."""
    samples = zip(*leaves_of, strict=True)
    return all(
        any(all(map(_is_equal, turned, after)) for turned in zip(*map(_mirrored, before), strict=False))
        for before, after in (tuple(zip(*sample, strict=True)) for sample in samples)
    )


def _are_mostly_kept(pairs: list[tuple[Tensor, Tensor]]) -> bool:
    shares = [(one == two).double().mean() for one, two in pairs if one.shape == two.shape]
    return bool(shares) and float(sum(shares)) > 0.5 * len(shares)


def _is_label_used(subject: Subject, stays: Sample) -> bool:
    """Whether the validation step computes with a leaf that does not change, and no target is of one that does."""
    if not stays or not subject.validates:
        return False
    step, trained = subject.attempt(training=False), subject.attempt()
    of_targets = set().union(*(trained.record.ancestors(loss.target) for loss in trained.losses))
    if any(id(leaf) in of_targets for path, leaf in leaves(trained.batch).items() if path not in stays):
        return False
    return any(step.record.takers(leaf) for path, leaf in leaves(step.batch).items() if path in stays)


def _place(
    subject: Subject, loader: DataLoader, places: list[Place], through: str, read: Callable[[], Any]
) -> Place | None:
    if through == "dataset":
        creation = origins.dataset_line(subject, loader.dataset)
        return creation[0] if creation else next(iter(places), None)
    drawing = replay.first_draw(read)
    return next(iter(reversed(drawing) if through == "hook" else drawing), None)


def _fix(subject: Subject, loader: DataLoader, through: str) -> str:
    if through == "hook":
        return "if self.trainer.training:  # only then augment"
    if through == "dataset" and any(
        underlying_dataset(item.dataset) is underlying_dataset(loader.dataset) for item in train_loaders(subject)
    ):
        return "# validation on a data set of its own, without augmentation: Subset(plain, val.indices)"
    return "# give the validation data the transform without random parts: resize, to tensor, normalize"
