"""Means that are divided by the batch size once more."""

from collections.abc import Iterator

import torch
from torch import Tensor

from playbook.doctor.batches import num_samples
from playbook.doctor.dependence import mapped
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.record import Op, Record
from playbook.doctor.steps import is_scalar, last_line
from playbook.doctor.subject import Subject

MEAN_DIVIDED_AGAIN = Defect(
    "mean-divided-again",
    "warning",
    "Gradients shrink with the batch size: the learning rate is divided by it.",
    shown_by=Evidence("experiment", "the losses of a batch given once and twice were compared"),
)
DEFECTS = (MEAN_DIVIDED_AGAIN,)
LIGHT = True
_DIVISIONS = ("div", "div_", "truediv", "itruediv", "__truediv__", "__itruediv__", "true_divide", "divide")
_EXACT = 0.002


def divided_mean(subject: Subject) -> Iterator[Finding | str]:
    """Gives the step each batch twice over, in evaluation mode: a mean over samples stays, and a sum doubles.

    What becomes a half, in two batches, is a mean that was divided by the number of samples.
    """
    if not subject.model.automatic_optimization:
        return
    ratios = []
    for batch in subject.batches[:2]:
        number = num_samples(batch)
        if number is None:
            return
        doubled = mapped(batch, lambda leaf: torch.cat([leaf, leaf]))
        if not subject.takes(doubled):
            return
        record, once = _run(subject, batch)
        _, twice = _run(subject, doubled)
        if once is None or twice is None or not abs(once) > 1e-9:
            return
        ratios.append(twice / once)
        if abs(ratios[-1] - 0.5) > _EXACT:
            yield "the loss of a batch does not shrink with its size"
            return
    message = "the loss of a batch is halved when the batch is given twice: a mean is divided by the batch size again"
    yield Finding(
        MEAN_DIVIDED_AGAIN, _division(record, number) or last_line(record), message, "# leave the division out"
    )


def _run(subject: Subject, batch: object) -> tuple[Record, float | None]:
    with subject.unchanged(), subject.evaluating(), torch.enable_grad():
        step = subject.record(batch).checked()
    loss = step.loss
    return step.record, None if loss is None or loss.numel() != 1 else float(loss.detach())


def _division(record: Record, number: int) -> Place | None:
    """The last line that divides a single number by the number of samples."""

    def divides(op: Op) -> bool:
        other = op.argument(1, "other")
        size = float(other) if isinstance(other, int | float) or (isinstance(other, Tensor) and not other.dim()) else 0
        return is_scalar(op.out) and size == number

    return next((op.place for op in reversed(list(record.named(*_DIVISIONS))) if divides(op)), None)
