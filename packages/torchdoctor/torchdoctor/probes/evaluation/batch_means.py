"""Averages over a validation that count its shorter last batch as much as the others."""

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

from torchmetrics import Metric

from torchdoctor.evidence.dependence import split_batch
from torchdoctor.evidence.logged_values import is_number, run_validation
from torchdoctor.evidence.samples import short_batch_size
from torchdoctor.findings import Finding, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.probes.evaluation.metrics import METRIC_MISUSE
from torchdoctor.running.batches import num_samples
from torchdoctor.running.subject import Subject


def batch_means(subject: Subject, tolerance: float = 0.01) -> Iterator[Finding | str]:
    """Runs validations of a third and of the rest of a batch, of either and of both, and compares what they log.

    A finding: a number that is the mean over the samples for each, or its root (that of the batch, or its square, is
    the mean of its parts' by their sizes), and that for both parts is halfway between that of either. Metrics that the
    step logs as objects count with what they compute in the end; plain numbers that it logs do not: Lightning weighs
    these by the batches' sizes. Sums, counts, extremes and settings are no means.

    Args:
        subject: the training that has just begun.
        tolerance: of how far the values of two parts of a batch are apart.
    """
    if not subject.validates or not any(map(short_batch_size, subject.loaders("val")[:1])):
        return
    are_plain: dict[str, list[bool]] = {}
    places: dict[str, Place | None] = {}
    for batch in subject.val_batches[:2]:
        number = num_samples(batch) or 0
        if number < 3:
            return
        share, parts = number // 3 / number, list(split_batch(batch, number // 3))
        try:
            logged = [_logged(subject, run) for run in ([batch], parts[:1], parts[1:], parts)]
        except Exception:  # of a step that needs the whole batch: nothing can be told
            return
        for name in set.intersection(*map(set, logged)):
            whole, one, two, both = (values[name][0] for values in logged)
            if abs(one - two) > 1e-4 * max(abs(one), abs(two)):
                is_mean = any(
                    abs(whole**power - share * one**power - (1 - share) * two**power)
                    < tolerance * abs(one**power - two**power)
                    for power in (1, 2)
                )
                is_plain = is_mean and abs(both - (one + two) / 2) < tolerance * abs(one - two)
                are_plain.setdefault(name, []).append(is_plain)
                places[name] = logged[-1][name][1]
    for name in sorted(name for name, answers in are_plain.items() if all(answers)):
        message = f"{name} is a plain mean of batch means: the shorter last batch counts as much as the others"
        fix = f'self.log("{name}", value, on_epoch=True)  # in the step: weighs by batch size; or update(value, len(x))'
        yield Finding(METRIC_MISUSE, places[name], message, fix)
        return
    if are_plain and not _are_trained_on(subject):
        yield "every sample counts the same in what a validation logs"


PROBE = Probe(look=batch_means, defects=(METRIC_MISUSE,), needs=(Need.LIGHTNING,))


def _are_trained_on(subject: Subject) -> bool:
    """Whether a metric of the validation also counts what a training step predicts."""
    metrics = [part for part in subject.model.modules() if isinstance(part, Metric)]
    updated = []
    with subject.unchanged(), subject.not_optimized():
        for step in (subject.train, subject.validate):
            for metric in metrics:
                metric.reset()
            batches = subject.batches if step == subject.train else subject.val_batches
            with suppress(Exception), nullcontext() if step == subject.train else subject.evaluating():
                step(batches[0])
            updated.append({id(metric) for metric in metrics if metric.update_called})
    return bool(set.intersection(*updated))


Logged = dict[str, tuple[float, Place | None]]


def _logged(subject: Subject, batches: list[Any]) -> Logged:
    """What a validation of these batches has logged in the end, and the lines that do so."""
    objects: dict[str, tuple[Metric, Place | None]] = {}
    numbers: Logged = {}

    def log(index: int | None, place: Place | None, name: str, value: Any, *_: Any, **__: Any) -> None:
        if isinstance(value, Metric):
            objects[name] = value, place
        elif index is None and is_number(value):
            numbers[name] = float(value), place

    with subject.unchanged(), subject.evaluating():
        run_validation(subject, batches, log)
        computed = {name: (metric.compute(), place) for name, (metric, place) in objects.items()}
    ready = {name: (float(value), place) for name, (value, place) in computed.items() if is_number(value)}
    return numbers | ready
