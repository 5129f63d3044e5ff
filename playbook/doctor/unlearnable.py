"""Losses from which nothing can be learned, whatever the optimizer does."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from playbook.doctor.findings import Finding
from playbook.doctor.losses import SHAPE_ONLY
from playbook.doctor.probes.overfit import LOSS_NOT_DECREASING
from playbook.doctor.record import tensors
from playbook.doctor.steps import Step, last_line
from playbook.doctor.subject import Subject

_RANDOM = ("randn", "randn_like", "normal", "normal_")  # a mean of zero, so that it is no label with some noise
_MIXING = ("__getitem__", "index_select", "roll", "flip", "gather", "sort", "argsort", "take_along_dim")


def constant(subject: Subject, step: Callable[[int], Step]) -> Finding | None:
    """A finding if no parameter gets a gradient other than zero, on any batch."""
    now = step(0)
    for number in range(len(subject.batches))[:4]:
        now = step(number)
        if now.loss is None or not now.loss.requires_grad or not now.grads:
            return None
        single = any(item.kind == "classes" and item.num_classes == 1 for item in now.losses)
        if not single and not float(now.loss.detach().abs().sum()):
            return None  # nothing left to learn, or a share that begins at zero
        reached = [now.grads[id(p)] for p in subject.model.parameters() if p.requires_grad and id(p) in now.grads]
        if not reached or any(bool(grad.any()) for grad in reached):
            return None
    found = now.losses
    place = found[-1].op.place if found else last_line(now.record)
    message = "the loss is constant: the gradient of every parameter is exactly zero on every batch"
    return Finding(
        LOSS_NOT_DECREASING,
        place,
        message,
        "# compute the loss of logits that differ: not over a dimension of size 1, not clamped",
    )


def noise(step: Callable[[int], Step]) -> Finding | None:
    """A finding if the target is random numbers that the step draws, and the prediction is made without them."""
    record = step(0).record
    for loss in step(0).losses:
        if loss.kind != "regression" or loss.prediction.dim() == 0:
            continue
        drawn = record.producer(loss.target, SHAPE_ONLY)
        if drawn is None or drawn.name not in _RANDOM or drawn.out is None:
            continue
        if id(drawn.out) not in record.ancestors(loss.prediction):
            message = f"the target is what {drawn.name} drew in this step, and the prediction is made without it"
            return Finding(
                LOSS_NOT_DECREASING, loss.op.place, message, "# add the same noise to the input that is to be learned"
            )
    return None


def reordered(subject: Subject, step: Callable[[int], Step]) -> Finding | None:
    """A finding if the target of a loss is the labels of the batch in another order than the prediction."""
    place, name = None, ""
    for number, batch in enumerate(subject.batches[:3]):
        now = step(number)
        record = now.record
        labels = [leaf.detach() for leaf in tensors(batch) if leaf.dim() == 1]
        found = [loss for loss in now.losses if any(_is_shuffled(loss.target, label) for label in labels)]
        mixing = [op for op in record.named(*_MIXING) if op.name != "__getitem__" or _picks(op.argument(1, "index"))]
        mixed = {id(out) for op in mixing for out in op.outputs}
        found = [loss for loss in found if not mixed.isdisjoint(record.ancestors(loss.target))]
        found = [loss for loss in found if mixed.isdisjoint(record.ancestors(loss.prediction))]
        if not found:
            return None
        maker = next((op for op in mixing if id(found[0].target) in {id(out) for out in op.outputs}), found[0].op)
        place, name = maker.place, found[0].op.name
    message = f"{name} compares the predictions with the labels of other samples: they are in another order"
    return Finding(LOSS_NOT_DECREASING, place, message, "# predictions and labels in one order")


def _is_shuffled(target: Tensor, label: Tensor) -> bool:
    if target.shape != label.shape or len(label) < 4 or torch.equal(target.detach().to(label.dtype), label):
        return False
    return torch.equal(target.detach().to(label.dtype).sort().values, label.sort().values)


def _picks(index: Any) -> bool:
    return any(leaf.dim() > 0 for leaf in tensors(index))
