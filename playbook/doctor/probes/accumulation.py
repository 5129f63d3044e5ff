"""Accumulated gradients: does every token count the same, whichever batch it came in."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from playbook.doctor.batches import num_samples
from playbook.doctor.dependence import mapped
from playbook.doctor.findings import Defect, Evidence, Finding
from playbook.doctor.losses import Loss
from playbook.doctor.steps import supervised
from playbook.doctor.subject import Subject

UNEQUAL_ACCUMULATION = Defect(
    "unequal-accumulation",
    "warning",
    "Tokens of short batches count for more than those of long ones: the step is not that of one large batch.",
    shown_by=Evidence("experiment", "the gradient was compared with that of one large batch"),
)
DEFECTS = (UNEQUAL_ACCUMULATION,)
_APART = 0.05  # of the gradient; equal batches give 1e-7
_EXACT = 1e-3  # of how far the losses of two parts are apart


def accumulation(subject: Subject) -> Iterator[Finding | str]:
    """Compares the gradient that the step accumulates with the mean over all labels of its batches.

    That is what one large batch gives, where the loss is a mean over labels: that of a batch is then the mean of its
    halves' by their numbers of labels, which is measured too, so that sums and losses divided by the step's own count
    are left alone. So is a module whose `weight(batch)` returns these numbers, by which Playbook weighs its batches.
    """
    together = _together(subject)
    batches = subject.batches[:together]
    if together < 2 or len(batches) < 2:
        return
    model = subject.model.eval()  # without dropout, halves and wholes compare
    gradients, counts, loss = [], [], None
    for batch in batches:
        measured = _measured(subject, batch)
        if measured is None:
            return
        _, count, loss = measured
        gradients.append(_gradient(subject))
        counts.append(count)
    if loss is None or not _is_mean(subject, batches[0]) or _weighs(model, batches, counts):
        return
    weights = torch.tensor(counts, dtype=torch.float64) / sum(counts)
    stacked = torch.stack(gradients)
    exact = weights @ stacked
    apart = ((stacked.mean(0) - exact).norm() / exact.norm().clamp(min=1e-12)).item()
    if apart <= _APART:
        yield "the gradients of accumulated batches are the mean over their labels"
        return
    numbers = ", ".join(map(str, counts))
    message = f"{together} batches of {numbers} labels count the same: the gradient is off by {apart:.0%} of its size"
    fix = "loss = F.cross_entropy(logits, labels, reduction='sum') / labels_of_the_step * accumulate_grad_batches"
    yield Finding(UNEQUAL_ACCUMULATION, loss.op.place, message, fix)


def _together(subject: Subject) -> int:
    """Batches of an optimizer step."""
    if subject.model.automatic_optimization:
        return int(subject.trainer.accumulate_grad_batches)
    stepped: list[bool] = []
    hooks = [item.register_step_pre_hook(lambda *_: stepped.append(True)) for item in subject.trainer.optimizers]
    number = 0
    with subject.unchanged():
        for index, batch in enumerate(subject.batches):
            subject.train(batch, index)
            number = index + 1
            if stepped:
                break
    for hook in hooks:
        hook.remove()
    subject.model.zero_grad()
    return number if stepped else 0


def _measured(subject: Subject, batch: Any) -> tuple[float, int, Loss] | None:
    """The loss of a batch, the labels in it, and the call that makes it; gradients stay in the weights."""
    step = subject.backward(batch)
    if step.loss is None:
        return None
    for loss in step.losses:
        moved = supervised(step, loss)
        if moved is not None and moved.any():
            return float(step.loss), int(moved.sum()), loss
    return None


def _gradient(subject: Subject) -> Tensor:
    weights = [weight for weight in subject.model.parameters() if weight.requires_grad]
    return torch.cat([(torch.zeros_like(w) if w.grad is None else w.grad).flatten() for w in weights]).double()


def _is_mean(subject: Subject, batch: Any) -> bool:
    number = num_samples(batch)
    if number is None or number < 2:
        return False
    halves = [mapped(batch, lambda leaf, part=part: leaf[part]) for part in _cuts(number)]
    whole, one, two = (_measured(subject, part) for part in (batch, *halves))
    if whole is None or one is None or two is None or one[1] + two[1] != whole[1]:
        return False
    mean = (one[0] * one[1] + two[0] * two[1]) / whole[1]
    return abs(whole[0] - mean) < max(_EXACT * abs(one[0] - two[0]), 1e-5 * abs(mean))


def _cuts(number: int) -> tuple[slice, slice]:
    return slice(None, number // 2), slice(number // 2, None)


def _weighs(model: Any, batches: list[Any], counts: list[int]) -> bool:
    method: Any = getattr(model, "weight", None)
    if not callable(method):
        return False
    try:
        weights: list[Any] = [method(batch) for batch in batches]
        return [float(weight) for weight in weights] == counts
    except Exception:  # of a method that means something else
        return False
