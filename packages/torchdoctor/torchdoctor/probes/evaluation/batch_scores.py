"""Scores of whole sets that are computed per batch and averaged."""

import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric

from torchdoctor.evidence.logged_values import is_number, run_validation
from torchdoctor.findings import Finding, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.probes.evaluation.metrics import METRIC_MISUSE
from torchdoctor.running.batches import num_samples
from torchdoctor.running.subject import Subject
from torchdoctor.running.training import train

_LIBRARIES = ("sklearn.metrics", *(f"torchmetrics.functional{part}" for part in ("", ".classification", ".regression")))
_KINDS = ("f1score", "fbetascore", "auroc", "rocauc", "precision", "recall", "specificity", "matthewscorr", "kappa")
_KINDS += ("r2score", "explainedvariance", "pearsoncorr", "spearmancorr", "concordancecorr")
_STEPS, _TRAIN_S = 30, 6.0  # after which even a network that knew one class has scores


def batch_scores(subject: Subject, different: float = 1e-3, apart: float = 0.01) -> Iterator[Finding | str]:
    """Compares F1, AUROC, R² and their like, as validation steps log them for their batches, with those of all samples.

    Lightning shows the mean of what the steps log. Each score is computed once more, by the same function or metric, of
    the samples of the first batches together. A finding: it is apart from the mean of their scores; an advice, if by
    less than 0.01. Accuracy, losses and scores of single images are means. What is logged with `on_epoch=False` is left
    alone, and a metric that is logged as an object, too, or computed as the epoch ends.

    Args:
        subject: the training that has just begun.
        different: least difference of scores of at most 1.
        apart: difference from which the second digit changes.
    """
    if not subject.validates or len(subject.val_batches) < 2 or subject.limits:  # scores depend on a batch's size
        return
    with subject.unchanged():
        scores = _scores(subject)
        if scores and scores[0].distance < apart:
            train(subject, _STEPS, _TRAIN_S)
            scores = _scores(subject)
    for score in scores[:1]:
        if score.distance < different:
            if score.mean:  # it may be 0 for want of a class in the first batches
                yield "the scores of batches that a validation logs have the mean that all samples have"
            return
        message = (
            f"{score.name} is a mean over batches: {score.mean:.3f} for the first {len(subject.val_batches)}, and"
            f" {score.together:.3f} for their samples together"
        )
        fix = f'self.log("{score.name}", metric)  # a metric of torchmetrics after metric.update(…), not its value'
        defect = METRIC_MISUSE if score.distance > apart else replace(METRIC_MISUSE, severity="advice")
        yield Finding(defect, score.place, message, fix)


PROBE = Probe(look=batch_scores, defects=(METRIC_MISUSE,), needs=(Need.LIGHTNING,))


@dataclass(frozen=True)
class _Score:
    """What is logged, its mean over the first batches and its value for their samples together."""

    name: str
    place: Place | None
    mean: float
    together: float

    @property
    def distance(self) -> float:
        """Between the two."""
        return abs(self.mean - self.together)


@dataclass(frozen=True)
class _Call:
    """One score of one batch: what computes it, its arguments, and the value."""

    compute: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: float


def _scores(subject: Subject) -> list[_Score]:
    """The scores that steps of a validation of the first batches log, those apart first; none where it fails."""
    calls: list[list[_Call]] = []
    logged: dict[str, list[float]] = defaultdict(list)
    places: dict[str, Place | None] = {}
    objects: list[Metric] = []

    def batches() -> Iterator[Any]:
        for batch in subject.val_batches:
            calls.append([])
            yield batch

    def log(
        index: int | None, place: Place | None, name: str, value: Any, *_: Any, on_epoch: bool | None = None, **__: Any
    ) -> None:
        if isinstance(value, Metric):
            objects.append(value)
        elif index is not None and on_epoch is not False and is_number(value):
            logged[name].append(float(value))
            places[name] = place

    with subject.unchanged(), subject.evaluating(), suppress(Exception):  # of any step, or of samples together
        with _noting(calls):
            run_validation(subject, batches(), log)
        ways = [way for way in zip(*calls, strict=True) if not _is_read_whole(way[0].compute, objects)]
        scores = [
            _Score(name, places[name], _mean(subject, values), _score_of_all(way))
            for name, values in logged.items()
            for way in [way for way in ways if [call.value for call in way] == values][:1]
        ]
        return sorted((score for score in scores if score.distance >= 0), key=lambda score: -score.distance)  # no NaN
    return []


def _is_read_whole(compute: Any, objects: list[Metric]) -> bool:
    """Whether a metric is logged itself, or was computed or begun anew as the epoch ended."""
    is_metric = isinstance(compute, Metric)
    return is_metric and (compute in objects or compute._computed is not None or not compute._update_count)


def _mean(subject: Subject, values: list[float]) -> float:
    """As Lightning takes it: weighed by the batches' sizes."""
    return float(np.average(values, weights=[num_samples(batch) or 1 for batch in subject.val_batches]))


def _score_of_all(calls: tuple[_Call, ...]) -> float:
    """The score of what all calls were given."""
    compute = calls[0].compute
    if isinstance(compute, Metric):
        metric = compute.clone()
        metric.reset()
        for call in calls:
            metric.update(*call.args, **call.kwargs)
        return float(metric.compute())
    args = [_joined(values) for values in zip(*(call.args for call in calls), strict=True)]
    return float(compute(*args, **{name: _joined([call.kwargs[name] for call in calls]) for name in calls[0].kwargs}))


def _joined(values: Sequence[Any]) -> Any:
    """Values of several batches in a row, or the first of settings."""
    if isinstance(values[0], Tensor) and values[0].dim():
        return torch.cat(list(values))
    return np.concatenate(values) if isinstance(values[0], np.ndarray | list) else values[0]


@contextmanager
def _noting(calls: list[list[_Call]]) -> Iterator[None]:
    """Adds each call that scores a batch by one number, of a library's function or of a metric, to the last list."""
    forward = Metric.forward

    def call_metric(metric: Metric, *args: Any, **kwargs: Any) -> Any:
        value = forward(metric, *args, **kwargs)
        if _is_score(type(metric).__name__) and is_number(value):
            calls[-1].append(_Call(metric, args, kwargs, float(value)))
        return value

    def noting(compute: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(compute)
        def call(*args: Any, **kwargs: Any) -> Any:
            value = compute(*args, **kwargs)
            if is_number(value):
                calls[-1].append(_Call(compute, args, kwargs, float(value)))
            return value

        return call

    libraries = [sys.modules[name] for name in _LIBRARIES if name in sys.modules]
    functions = {id(value): value for each in libraries for name, value in vars(each).items() if _is_score(name)}
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(Metric, "forward", call_metric))
        for module in list(sys.modules.values()):
            for name, value in list(vars(module).items()):
                if id(value) in functions and inspect.isfunction(value):
                    stack.enter_context(mock.patch.object(module, name, noting(value)))
        yield


def _is_score(name: str) -> bool:
    name = name.replace("_", "").lower()
    return "retrieval" not in name and any(kind in name for kind in _KINDS)
