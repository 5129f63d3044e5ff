"""Validation and test loaders that leave samples out."""

import math
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, WeightedRandomSampler

from playbook.doctor import blame
from playbook.doctor.findings import LOADER, Defect, Finding
from playbook.doctor.samples import leaves, size
from playbook.doctor.subject import Subject

EVAL_DROPS_DATA = Defect(
    "eval-drops-data",
    "warning",
    "Part of the data is never evaluated.",
    shown_by=LOADER,
)
DEFECTS = (EVAL_DROPS_DATA,)

_SECONDS = 0.5
_EPISODES = 8  # batches that are looked at


def eval_drops(subject: Subject) -> Iterator[Finding | str]:
    """Counts the samples that an epoch of a validation or test loader asks for.

    Samplers choose samples for good reasons: only an incomplete batch that is dropped counts, draws that miss samples
    by chance, and batches put together by a sampler of the user's own without samples that no other loader has: unless
    it draws episodes, as few-shot learning does, with the same number of each class or with samples that come twice.
    drop_last costs nothing where the batches come out even.
    """
    good = 0
    for kind in ("val", "test"):
        for loader, places in blame.loaders(subject, kind):
            number, missing, reason = _missing(loader)
            if not missing:
                number, missing, reason = _left_out(loader, subject)
            if not missing:
                good += 1
                continue
            names = {"drop_last": "drop_last", "batch_sampler": "batch_sampler"}
            place = blame.option(places, next((names[name] for name in names if name in reason), "sampler"))[0]
            message = f"{missing} of {number} samples of the {kind} loader are not evaluated in an epoch: {reason}"
            fix = (
                "DataLoader(dataset, batch_size=…, drop_last=False)"
                if "drop_last" in reason
                else "DataLoader(dataset, batch_size=…)"
            )
            yield Finding(EVAL_DROPS_DATA, place, message, fix)
    if good:
        yield (
            "validation and test loaders leave nothing out" if good > 1 else "the validation loader leaves nothing out"
        )


def _missing(loader: DataLoader) -> tuple[int, int, str]:
    """How many samples there are, how many an epoch misses, and why."""
    if isinstance(loader.dataset, IterableDataset):
        return _of_stream(loader)
    number = size(loader.dataset) or 0
    if getattr(loader.batch_sampler, "drop_last", False) is True:
        kept = sum(len(batch) for batch in loader.batch_sampler or [])
        asked = (
            sum(1 for _ in loader.sampler) if type(loader).__name__ == "DataLoader" and loader.batch_size else number
        )
        if kept < asked:
            return asked, asked - kept, f"drop_last with batches of {loader.batch_size or 'several sizes'}"
    if isinstance(loader.sampler, WeightedRandomSampler | RandomSampler):
        seen = len({index for batch in loader.batch_sampler or [] for index in batch})
        drawn = getattr(loader.sampler, "replacement", False)
        if seen < number and (drawn or getattr(loader.sampler, "num_samples", number) < number):
            return (
                number,
                number - seen,
                f"{type(loader.sampler).__name__} draws {'with replacement' if drawn else 'only a part'}",
            )
    return number, 0, ""


def _left_out(loader: DataLoader, subject: Subject) -> tuple[int, int, str]:
    """The samples that a batch sampler of the user's own gives to no batch, and that are not trained with either."""
    sampler, number = loader.batch_sampler, size(loader.dataset) or 0
    if sampler is None or type(sampler).__module__.startswith(("torch.", "lightning.")):
        return number, 0, ""
    if _draws_episodes(loader):
        return number, 0, ""
    seen: set[int] = set()
    deadline = time.monotonic() + _SECONDS
    for other in (loader, *(other for other, _ in blame.loaders(subject, "train"))):
        if type(other.dataset) is not type(loader.dataset) or size(other.dataset) != number:
            continue  # else the samples are divided between the loaders by their numbers
        for batch in other.batch_sampler or []:
            if other is loader and not seen.isdisjoint(map(int, batch)):
                return number, 0, ""
            seen |= set(map(int, batch))
            if time.monotonic() > deadline:
                return number, 0, ""
    return number, number - len(seen), f"its batch_sampler, {type(sampler).__name__}, leaves them out"


def _draws_episodes(loader: DataLoader) -> bool:
    """Whether batches have several classes, of each the same number of samples or a multiple of it."""
    counts: dict[str, list[int]] = {}  # of a class in a batch, by the leaf that tells the class
    several: set[str] = set()
    for batch in islice(loader.batch_sampler or [], _EPISODES):
        labels: dict[str, list[int]] = {}
        for number in batch:
            for path, leaf in leaves(loader.dataset[number]).items():
                if leaf.numel() == 1 and not leaf.is_floating_point():
                    labels.setdefault(path, []).append(int(leaf))
        for path, values in labels.items():
            times = list(Counter(values).values())
            counts.setdefault(path, []).extend(times)
            several |= {path} if len(times) > 1 else set()
    return any(math.gcd(*counts[path]) > 1 for path in several)


def _of_stream(loader: DataLoader) -> tuple[int, int, str]:
    if not loader.drop_last or not loader.batch_size:
        return 0, 0, ""
    number, deadline = 0, time.monotonic() + _SECONDS
    for _ in loader.dataset:
        number += 1
        if time.monotonic() > deadline:
            return number, 0, ""
    return number, number % loader.batch_size, f"drop_last with batches of {loader.batch_size}"
