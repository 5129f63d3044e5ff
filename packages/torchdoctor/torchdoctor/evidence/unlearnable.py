"""Finds losses that cannot be learned by any optimizer: constant, random or mismatched targets."""

from collections.abc import Callable

import torch
from torch import Tensor

from torchdoctor.findings import Defect, Evidence, Finding
from torchdoctor.running.losses import SHAPE_ONLY
from torchdoctor.running.record import NORMAL, Op, tensors
from torchdoctor.running.steps import Step, last_line
from torchdoctor.running.subject import Subject

LOSS_NOT_DECREASING = Defect(
    "loss-not-decreasing",
    "critical",
    "Nothing is learned.",
    long=True,
    shown_by=Evidence("experiment", "the loss was compared with a plain one, or trained on 8 samples"),
)
_REORDERING = ("__getitem__", "index_select", "roll", "flip", "gather", "sort", "argsort", "take_along_dim")


def constant_loss(subject: Subject, step: Callable[[int], Step]) -> Finding | None:
    """A finding if every gradient is zero on every batch."""
    for number in range(len(subject.batches[:4])):
        now = step(number)
        grads = [now.grads[id(weight)] for weight in subject.model.parameters() if id(weight) in now.grads]
        if now.loss is None or not grads or any(bool(grad.any()) for grad in grads):
            return None
        single = any(loss.kind == "classes" and loss.num_classes == 1 for loss in now.losses)
        if not single and not bool(now.loss.detach().any()):
            return None  # nothing left to learn, or a share that begins at zero
    place = now.losses[-1].op.place if now.losses else last_line(now.record)
    message = "the loss is constant: the gradient of every parameter is exactly zero on every batch"
    fix = "# compute the loss of logits that differ: not over a dimension of size 1, not clamped"
    return Finding(LOSS_NOT_DECREASING, place, message, fix)


def random_target(step: Callable[[int], Step]) -> Finding | None:
    """A finding if the target is noise drawn in the step that the prediction does not depend on."""
    record = step(0).record
    for loss in step(0).losses:
        drawn = record.producer(loss.target, SHAPE_ONLY)
        if loss.kind != "regression" or not loss.prediction.dim() or drawn is None or drawn.name not in NORMAL:
            continue
        if id(drawn.out) not in record.ancestors(loss.prediction):
            message = f"the target is what {drawn.name} drew in this step, and the prediction is made without it"
            fix = "# add the same noise to the input that is to be learned"
            return Finding(LOSS_NOT_DECREASING, loss.op.place, message, fix)
    return None


def reordered_labels(subject: Subject, step: Callable[[int], Step]) -> Finding | None:
    """A finding if the target holds the batch's labels in another order than the prediction."""
    for number in range(len(subject.batches[:3])):
        now = step(number)
        record, labels = now.record, [leaf for leaf in tensors(now.batch) if leaf.dim() == 1]
        mixing = [op for op in record.named(*_REORDERING) if op.name != "__getitem__" or _picks(op)]
        mixing = [
            op for op in mixing if now.batch_ids.isdisjoint(map(id, op.inputs[1:]))
        ]  # an order comes with the batch
        mixed = {id(out): op for op in mixing for out in op.outputs}
        losses = [
            loss
            for loss in now.losses
            if any(_is_shuffled(loss.target, label) for label in labels)
            and not mixed.keys().isdisjoint(record.ancestors(loss.target))
            and mixed.keys().isdisjoint(record.ancestors(loss.prediction))
        ]
        if not losses:
            return None
    place = mixed.get(id(losses[0].target), losses[0].op).place
    name = losses[0].op.name
    message = f"{name} compares the predictions with the labels of other samples: they are in another order"
    return Finding(LOSS_NOT_DECREASING, place, message, "# predictions and labels in one order")


def _is_shuffled(target: Tensor, label: Tensor) -> bool:
    if target.shape != label.shape or len(label) < 4:
        return False
    target, label = target.detach().double(), label.detach().double()
    return not torch.equal(target, label) and torch.equal(target.sort().values, label.sort().values)


def _picks(op: Op) -> bool:
    """Whether an index is a tensor, not a slice."""
    return any(leaf.dim() > 0 for leaf in tensors(op.argument(1, "index")))
