"""Validation and test loaders that leave samples out."""

import math
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, WeightedRandomSampler

from torchdoctor.evidence import origins
from torchdoctor.evidence.samples import dataset_size, leaves, plain_numbers
from torchdoctor.findings import LOADER, Defect, Finding
from torchdoctor.probe import Probe
from torchdoctor.running.batches import first_samples, num_samples
from torchdoctor.running.subject import Subject

EVAL_DROPS_DATA = Defect(
    "eval-drops-data",
    "warning",
    "Part of the data is never evaluated.",
    shown_by=LOADER,
)

_SECONDS = 0.5
_EPISODES = 8  # batches that are looked at

LeftOut = tuple[int, int, str, str]  # samples that an epoch misses, all of them, the option that does it, and how


def eval_drops(subject: Subject) -> Iterator[Finding | str]:
    """Counts the samples that an epoch of a validation or test loader asks for.

    Samplers choose samples for good reasons: only an incomplete batch that is dropped counts, draws that miss samples
    by chance, and batches put together by a sampler of the user's own without samples that no other loader has: unless
    it draws episodes, as few-shot learning does, with the same number of each class or with samples that come twice.
    drop_last costs nothing where the batches come out even.
    """
    complete, dropping = 0, 0
    for kind in ("val", "test"):
        for loader, places in origins.loaders(subject, kind):
            gap = _of_stream(loader) if isinstance(loader.dataset, IterableDataset) else _left_out(subject, loader)
            missing, number, option, reason = gap or (0, 0, "", "")
            if not missing or (kind == "val" and option == "drop_last" and not _takes_fewer(subject)):
                complete += loader.batch_sampler is not None  # else batches come as they are
                continue
            dropping += 1
            which = "this" if subject.script is not None else f"the {kind}"
            message = f"{missing} of {number} samples of {which} loader are not evaluated in an epoch: {reason}"
            fix, values = "DataLoader(dataset, batch_size=…)", {}
            if option == "drop_last":
                fix, values = "DataLoader(dataset, batch_size=…, drop_last=False)", {"variant": "keep last"}
            yield Finding(EVAL_DROPS_DATA, origins.option(places, option)[0], message, fix, values)
    if complete and not dropping:
        yield f"the validation {'and test loaders leave' if complete > 1 else 'loader leaves'} nothing out"


PROBE = Probe(look=eval_drops, defects=(EVAL_DROPS_DATA,))


def _of_stream(loader: DataLoader) -> LeftOut | None:
    if not loader.drop_last or not loader.batch_size:
        return None
    number, deadline = 0, time.monotonic() + _SECONDS
    for _ in loader.dataset:
        number += 1
        if time.monotonic() > deadline:
            return None
    return number % loader.batch_size, number, "drop_last", f"drop_last with batches of {loader.batch_size}"


def _left_out(subject: Subject, loader: DataLoader) -> LeftOut | None:
    number, sampler, batches = dataset_size(loader.dataset) or 0, loader.sampler, loader.batch_sampler
    if getattr(batches, "drop_last", False):
        asked = sum(1 for _ in sampler) if loader.batch_size else number
        missing = asked - sum(len(batch) for batch in batches or [])
        if missing > 0:
            reason = f"drop_last with batches of {loader.batch_size or 'several sizes'}"
            return missing, asked, "drop_last", reason
    if isinstance(sampler, WeightedRandomSampler | RandomSampler):
        missing = number - len({index for batch in batches or [] for index in batch})
        way = "with replacement" if sampler.replacement else "only a part"
        return missing, number, "sampler", f"{type(sampler).__name__} draws {way}"
    if batches is None or type(batches).__module__.startswith(("torch.", "lightning.")) or _draws_episodes(loader):
        return None
    seen: set[int] = set()
    deadline = time.monotonic() + _SECONDS
    for other in (loader, *(other for other, _ in origins.loaders(subject, "train"))):
        if type(other.dataset) is not type(loader.dataset) or dataset_size(other.dataset) != number:
            continue  # else the samples are divided between the loaders by their numbers
        for batch in other.batch_sampler or []:
            indices = set(plain_numbers(batch) or ())
            if time.monotonic() > deadline or not indices or (other is loader and seen & indices):
                return None
            seen |= indices
    reason = f"its batch_sampler, {type(batches).__name__}, leaves them out"
    return number - len(seen), number, "batch_sampler", reason


def _takes_fewer(subject: Subject) -> bool:
    """Whether a validation step runs on half of the samples of a batch, or there is none to try it."""
    batch = subject.val_batches[0] if subject.validates else None
    half = first_samples(batch, (num_samples(batch) or 0) // 2) if batch is not None else None
    return half is None or subject.accepts(half, training=False)


def _draws_episodes(loader: DataLoader) -> bool:
    """Whether batches have several classes, of each the same number of samples or a multiple of it."""
    counts: dict[str, list[list[int]]] = {}  # of the classes in each batch, by the leaf that tells the class
    for batch in islice(loader.batch_sampler or [], _EPISODES):
        labels: dict[str, list[int]] = {}
        for number in batch:
            for path, leaf in leaves(loader.dataset[number]).items():
                if leaf.numel() == 1 and not leaf.is_floating_point():
                    labels.setdefault(path, []).append(int(leaf))
        for path, values in labels.items():
            counts.setdefault(path, []).append(list(Counter(values).values()))
    several = [batches for batches in counts.values() if any(len(batch) > 1 for batch in batches)]
    return any(math.gcd(*chain(*batches)) > 1 for batches in several)
