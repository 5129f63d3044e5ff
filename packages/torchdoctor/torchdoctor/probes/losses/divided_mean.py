"""Means that are divided by the batch size once more."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from torchdoctor.evidence.dependence import evaluation_step, with_samples_twice
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running.batches import first_samples, num_samples
from torchdoctor.running.record import Record
from torchdoctor.running.steps import Step, is_scalar, last_line
from torchdoctor.running.subject import Subject

MEAN_DIVIDED_AGAIN = Defect(
    "mean-divided-again",
    "warning",
    "Gradients shrink with the batch size: the learning rate is divided by it.",
    shown_by=Evidence("experiment", "the losses of a batch given once and twice were compared"),
)
_DIVISIONS = ("div", "div_", "truediv", "itruediv", "__truediv__", "__itruediv__", "true_divide", "divide")
_FIX = "# leave the division out"


def divided_mean(subject: Subject, tolerance: float = 0.002) -> Iterator[Finding | str]:
    """Gives the step each batch twice over, in evaluation mode: a mean over samples stays, and a sum doubles.

    What becomes a half, in two batches, is a mean that was divided by the number of samples. Steps that go backwards
    themselves have several losses, perhaps of noise: there, a mean of torch's is looked for that is divided by the
    number of samples, whatever that is.

    Args:
        subject: the training that has just begun.
        tolerance: of the ratio 0.5.
    """
    if not subject.model.automatic_optimization:
        place = _divided_mean(subject)
        if place is not None:
            message = "the mean of a loss is divided by the number of samples again, in a batch and in a half of it"
            yield Finding(MEAN_DIVIDED_AGAIN, place, message, _FIX)
        return
    for batch in subject.batches[:2]:
        number = num_samples(batch)
        doubled = with_samples_twice(batch) if number is not None else None
        if number is None or not subject.accepts(doubled):
            return
        steps = [evaluation_step(subject, each, training=True) for each in (batch, doubled)]
        once, twice = (0.0 if step.loss is None else float(step.loss.detach().sum()) for step in steps)
        if not abs(once) > 1e-9:
            return
        if not abs(twice / once - 0.5) < tolerance:
            yield "the loss of a batch does not shrink with its size"
            return
    message = "the loss of a batch is halved when the batch is given twice: a mean is divided by the batch size again"
    place = _division(steps[0].record, number) or last_line(steps[0].record)
    yield Finding(MEAN_DIVIDED_AGAIN, place, message, _FIX)


PROBE = Probe(
    look=divided_mean,
    defects=(MEAN_DIVIDED_AGAIN,),
    needs=(Need.BATCHES, Need.SAMPLES, Need.FEWER_SAMPLES),
    is_light=True,
)


def _divided_mean(subject: Subject) -> Place | None:
    """The line that divides a loss with the reduction of a mean by the number of samples."""
    whole = subject.batches[0]
    number = num_samples(whole) or 0
    if number < 4 or (half := first_samples(whole, number // 2)) is None:
        return None
    with subject.not_trained():
        places = [set(_divisions(subject.record(batch), num_samples(batch) or 0)) for batch in (whole, half)]
    return next(iter(set.intersection(*places)), None)


def _divisions(step: Step, number: int) -> Iterator[Place | None]:
    means = {id(loss.op.out) for loss in step.losses if loss.op.kwargs.get("reduction", "mean") == "mean"}
    for op in step.record.named(*_DIVISIONS):
        is_of_mean = bool(op.inputs) and id(op.inputs[0]) in means and is_scalar(op.out)
        if is_of_mean and _is_number(op.argument(1, "other"), number):
            yield op.place


def _division(record: Record, number: int) -> Place | None:
    """The last line that divides a single number by the number of samples."""
    places = []
    for op in record.named(*_DIVISIONS):
        if is_scalar(op.out) and _is_number(op.argument(1, "other"), number):
            places.append(op.place)
    return places[-1] if places else None


def _is_number(divisor: Any, number: int) -> bool:
    is_number = isinstance(divisor, int | float) or (isinstance(divisor, Tensor) and not divisor.dim())
    return is_number and float(divisor) == number
