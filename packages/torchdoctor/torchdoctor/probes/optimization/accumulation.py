"""Accumulated gradients that weigh tokens unequally across batches."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchdoctor.evidence.dependence import split_batch
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running.batches import num_samples
from torchdoctor.running.steps import supervised_positions
from torchdoctor.running.subject import Subject

UNEQUAL_ACCUMULATION = Defect(
    "unequal-accumulation",
    "warning",
    "Tokens of short batches count for more than those of long ones: the step is not that of one large batch.",
    shown_by=Evidence("experiment", "the gradient was compared with that of one large batch"),
)
_EXACT = 1e-3  # of how far the losses of two parts are apart


def accumulation(subject: Subject, tolerance: float = 0.05) -> Iterator[Finding | str]:
    """Compares the gradient that the step accumulates with the mean over all labels of its batches.

    That is what one large batch gives, where the loss is a mean over labels: that of a batch is then the mean of its
    halves' by their numbers of labels, which is measured too, so that sums and losses divided by the step's own count
    are left alone. So is a module whose `weight(batch)` returns these numbers, by which Playbook weighs its batches.

    Args:
        subject: the training that has just begun.
        tolerance: share of the gradient; equal batches give 1e-7.
    """
    together = _accumulated_batches(subject)
    batches = subject.batches[:together]
    if together < 2 or len(batches) < 2:
        return
    subject.model.eval()  # without dropout, halves and wholes compare
    parts = [part for batch in batches if (part := _measure(subject, batch))]
    counts = [part.count for part in parts]
    if len(parts) < len(batches) or not _is_mean(subject, batches[0], parts[0]) or _weighs(subject, batches, counts):
        return
    weights = torch.tensor(counts, dtype=torch.float64) / sum(counts)
    stacked = torch.stack([part.gradient for part in parts])
    exact = weights @ stacked
    apart = ((stacked.mean(0) - exact).norm() / exact.norm().clamp(min=1e-12)).item()
    if apart <= tolerance:
        yield "the gradients of accumulated batches are the mean over their labels"
        return
    numbers = ", ".join(map(str, counts))
    message = f"{together} batches of {numbers} labels count the same: the gradient is off by {apart:.0%} of its size"
    fix = "loss = F.cross_entropy(logits, labels, reduction='sum') / labels_of_the_step * accumulate_grad_batches"
    yield Finding(UNEQUAL_ACCUMULATION, parts[-1].place, message, fix)


PROBE = Probe(look=accumulation, defects=(UNEQUAL_ACCUMULATION,), needs=(Need.LIGHTNING,))


@dataclass
class _MicroBatch:
    """A batch of a step: its loss, the labels in it, the gradient of all weights, and the line of the loss."""

    loss: float
    count: int
    gradient: Tensor
    place: Place | None


def _accumulated_batches(subject: Subject) -> int:
    """Batches of an optimizer step."""
    if subject.model.automatic_optimization:
        return int(subject.trainer.accumulate_grad_batches)
    stepped: list[bool] = []
    hooks = [item.register_step_pre_hook(lambda *_: stepped.append(True)) for item in subject.trainer.optimizers]
    number = 0
    with subject.unchanged():
        while not stepped and number < len(subject.batches):
            subject.train(subject.batches[number], number)
            number += 1
    for hook in hooks:
        hook.remove()
    return number if stepped else 0


def _measure(subject: Subject, batch: Any) -> _MicroBatch | None:
    step = subject.backward(batch)
    if step.loss is None:
        return None
    for loss in step.losses:
        moved = supervised_positions(step, loss)
        if moved is not None and moved.any():
            weights = [weight for weight in subject.model.parameters() if weight.requires_grad]
            grads = [(torch.zeros_like(w) if w.grad is None else w.grad).flatten() for w in weights]
            return _MicroBatch(float(step.loss), int(moved.sum()), torch.cat(grads).double(), loss.op.place)
    return None


def _is_mean(subject: Subject, batch: Any, whole: _MicroBatch) -> bool:
    number = num_samples(batch) or 0
    if number < 2:
        return False
    one, two = (_measure(subject, half) for half in split_batch(batch, number // 2))
    if one is None or two is None or one.count + two.count != whole.count:
        return False
    mean = (one.loss * one.count + two.loss * two.count) / whole.count
    return abs(whole.loss - mean) < max(_EXACT * abs(one.loss - two.loss), 1e-5 * abs(mean))


def _weighs(subject: Subject, batches: list[Any], counts: list[int]) -> bool:
    method: Any = getattr(subject.model, "weight", None)
    with suppress(Exception):  # of a method that means something else
        return [float(method(batch)) for batch in batches] == counts
    return False
