"""Averages over a validation that count its shorter last batch as much as the others."""

from collections.abc import Iterator
from functools import partial
from numbers import Real
from sys import _getframe
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from playbook.doctor import source
from playbook.doctor.batches import num_samples
from playbook.doctor.dependence import mapped
from playbook.doctor.findings import Finding, Place
from playbook.doctor.probes.metrics import METRIC_MISUSE
from playbook.doctor.subject import Subject

DEFECTS = (METRIC_MISUSE,)

_EXACT = 0.01  # of how far the values of two parts of a batch are apart


def batch_means(subject: Subject) -> Iterator[Finding | str]:
    """Runs validations of a third and of the rest of a batch, of either and of both, and compares what they log.

    A finding: a number that is the mean over the samples for each, or its root (that of the batch, or its square, is
    the mean of its parts' by their sizes), and that for both parts is halfway between that of either. Metrics that the
    step logs as objects count with what they compute in the end; plain numbers that it logs do not: Lightning weighs
    these by the batches' sizes. Sums, counts, extremes and settings are no means.
    """
    if not subject.validates or not _is_uneven(subject):
        return
    told: dict[str, bool] = {}
    places: dict[str, Place | None] = {}
    for batch in subject.val_batches[:2]:
        number = num_samples(batch) or 0
        if not (cut := number // 3):
            return
        ends = (slice(None, cut), slice(cut, None))
        parts = [mapped(batch, lambda leaf, end=end: leaf[end]) for end in ends]
        try:
            whole, one, two, both = (_logged(subject, run) for run in ([batch], parts[:1], parts[1:], parts))
        except Exception:  # of a step that needs the whole batch: nothing can be told
            return
        for name in whole.keys() & one.keys() & two.keys() & both.keys():
            (first, _), (second, _), (total, _), (mixed, place) = one[name], two[name], whole[name], both[name]
            apart = abs(first - second)
            if not apart > 1e-4 * max(abs(first), abs(second)):
                continue
            is_mean = any(
                abs(total**power - (cut * first**power + (number - cut) * second**power) / number)
                < _EXACT * abs(first**power - second**power)
                for power in (1, 2)
            )
            told[name] = told.get(name, True) and is_mean and abs(mixed - (first + second) / 2) < _EXACT * apart
            places[name] = place
    for name in sorted(name for name, unweighted in told.items() if unweighted):
        message = f"{name} is a plain mean of batch means: the shorter last batch counts as much as the others"
        fix = f'self.log("{name}", value, on_epoch=True)  # in the step: weighs by batch size; or update(value, len(x))'
        yield Finding(METRIC_MISUSE, places[name], message, fix)
        return
    yield "every sample counts the same in a validation"


Logged = dict[str, tuple[float, Place | None]]


def _logged(subject: Subject, batches: list[Any]) -> Logged:
    """What a validation of these batches has logged in the end, and the lines that do so."""
    model = subject.model
    objects: dict[str, tuple[Metric, Place | None]] = {}
    numbers: Logged = {}

    def log(in_step: bool, name: str, value: Any, *_: Any, **__: Any) -> None:
        places, _direct = source.callers(_getframe(1))
        place = places[0] if places else None
        if isinstance(value, Metric):
            objects[name] = value, place
        elif not in_step and _is_number(value):
            numbers[name] = float(value), place

    def log_dict(in_step: bool, dictionary: Any, *_: Any, **__: Any) -> None:
        for name, value in dictionary.items():
            log(in_step, name, value)

    with subject.unchanged(), subject.evaluating():  # which puts the methods back as well
        for metric in (part for part in model.modules() if isinstance(part, Metric)):
            metric.reset()
        model.on_validation_start()
        model.on_validation_epoch_start()
        model.log, model.log_dict = partial(log, True), partial(log_dict, True)
        for index, batch in enumerate(batches):
            torch.manual_seed(0)
            model.on_validation_batch_start(batch, index, 0)
            output = subject.validate(batch, index)
            model.on_validation_batch_end(output, batch, index, 0)
        model.log, model.log_dict = partial(log, False), partial(log_dict, False)
        model.on_validation_epoch_end()
        model.on_validation_end()
        computed = {name: (metric.compute(), place) for name, (metric, place) in objects.items()}
    ready = {name: (float(value), place) for name, (value, place) in computed.items() if _is_number(value)}
    return numbers | ready


def _is_number(value: Any) -> bool:
    return value.numel() == 1 if isinstance(value, Tensor) else isinstance(value, Real)


def _is_uneven(subject: Subject) -> bool:
    for loader in subject.loaders("val")[:1]:
        try:
            sampler: Any = loader.sampler
            size, number = loader.batch_size or 0, len(sampler)
            return bool(size) and not loader.drop_last and number > size and number % size > 0
        except TypeError:
            return False
    return False
