"""Summed loss terms beside averaged ones."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from torchdoctor.evidence.dependence import with_samples_twice
from torchdoctor.findings import Defect, Evidence, Finding, NotLookedAt
from torchdoctor.probe import Probe
from torchdoctor.running.batches import num_samples
from torchdoctor.running.losses import summands
from torchdoctor.running.record import Op
from torchdoctor.running.steps import Step
from torchdoctor.running.subject import Subject

MIXED_REDUCTIONS = Defect(
    "mixed-reductions",
    "warning",
    "The balance of the terms changes with the batch size: what is tuned for one is wrong for another.",
    shown_by=Evidence("experiment", "each sample was given twice, and the terms of the loss were compared"),
)
_TWICE, _SAME = (1.97, 2.03), (0.7, 1.4)  # of a term, when each sample is there twice; noise moves means
_LEAST = 1e-6  # of a term


def reductions(subject: Subject) -> Iterator[Finding | str | NotLookedAt]:
    """Gives each sample twice: a term that is summed over samples doubles, one that is averaged stays.

    Terms are what the last additions of the loss add up, as far as they depend on the batch. A sum of both kinds weighs
    its terms by the batch size, as the KL divergence that is summed beside a reconstruction error that is averaged.
    """
    batch = subject.batches[0] if subject.batches else None
    one = _terms(subject, batch) if batch is not None else []
    if len(one) < 2:
        return
    if (num_samples(batch) or 0) < 4:
        yield NotLookedAt(MIXED_REDUCTIONS, "the tensors of a batch do not share their first dimension, or it is short")
        return
    double = with_samples_twice(batch)
    if not subject.accepts(double) or len(two := _terms(subject, double)) != len(one):
        yield NotLookedAt(MIXED_REDUCTIONS, "the step does not take another number of samples")
        return
    ratios = {}
    for (step, first), (_, second) in zip(one, two, strict=True):
        if abs(float(first)) > _LEAST:
            ratios[id(first)] = (step, first, float(second) / float(first))
    if len(ratios) < 2:
        return
    summed = [(step, term) for step, term, ratio in ratios.values() if _TWICE[0] < ratio < _TWICE[1]]
    averaged = [term for _, term, ratio in ratios.values() if _SAME[0] < ratio < _SAME[1]]
    if not summed or not averaged:
        yield f"the {len(ratios)} terms of the loss follow the batch size alike"
        return
    step, term = summed[0]
    maker = _sum(step, term)
    message = f"{len(summed)} of {len(ratios)} terms double when each sample is there twice, the others stay"
    fix = "x.sum(dim=1).mean()  # over the features of a sample, then the mean over samples"
    yield Finding(MIXED_REDUCTIONS, maker.place if maker is not None else None, message, fix)


PROBE = Probe(look=reductions, defects=(MIXED_REDUCTIONS,), is_light=True)


def _terms(subject: Subject, batch: Any) -> list[tuple[Step, Tensor]]:
    """What the loss of a batch adds up, as far as it depends on the batch, with the step."""
    with subject.unchanged(), subject.not_optimized():
        step = subject.record(batch).checked()
    terms = summands(step.record, step.loss) if step.loss is not None else []
    return [(step, term) for term in terms if step.is_from_data(term)]


def _sum(step: Step, term: Tensor) -> Op | None:
    """The call that reduces a term to a number, behind factors and signs."""
    maker = step.record.producer(term)
    while maker is not None and maker.name not in ("sum", "nansum"):
        inner = [leaf for leaf in maker.inputs if leaf.dim() == 0 and step.is_from_data(leaf)]
        if not inner:
            break
        maker = step.record.producer(inner[0])
    return maker
