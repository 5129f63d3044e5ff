"""What a supervised step is after: a prediction, and the plain loss that says how far it is from the batch's labels."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdoctor.running.losses import SHAPE_ONLY, Loss
from torchdoctor.running.record import Op, Record, tensors
from torchdoctor.running.steps import Step

_FIXED = {"multinomial", "bernoulli", "argmax", "topk", "rand_like", "randn_like", "zeros_like", "ones_like"}
_PREPARING = SHAPE_ONLY | {"log", "one_hot", "long", "bool", "scatter_", "clamp", "add"}
_SIZES, _PRODUCTS = ("pow", "__pow__", "square", "abs", "norm", "cosh", "huber_loss"), ("mul", "__mul__")


@dataclass
class Goal:
    """A prediction and its labels.

    Args:
        kind: classes, binary or regression.
        prediction: logits, log-probabilities, probabilities or values, as the step has them.
        target: the labels, computed from the batch alone.
        op: the call of the step that compares, or prepares to.
        plain: the standard loss, from such a prediction.
        ignorant: a prediction that knows nothing: equal logits, or the labels' mean.
    """

    kind: str
    prediction: Tensor
    target: Tensor
    op: Op
    plain: Callable[[Tensor], Tensor]
    ignorant: Tensor


def goals(step: Step) -> list[Goal]:
    """The goals of a recorded step, whether its losses are torch's or written by hand."""
    labels = _of_batch(step)
    given = [_of_loss(loss) for loss in step.losses if id(loss.target) in labels and loss.prediction.dim()]
    return list(filter(None, given)) or list(_by_hand(step.record, labels))


def _of_batch(step: Step) -> dict[int, Tensor]:
    """Tensors computed from the batch without weights and without chance, by identity."""
    found = {id(leaf): leaf for leaf in tensors(step.batch)}
    for op in step.record.ops:
        known = [id(leaf) in found for leaf in op.inputs if leaf.dim() or id(leaf) in found]
        if any(known) and all(known) and op.name not in _FIXED:
            found |= {id(leaf): leaf for leaf in op.outputs if not leaf.requires_grad}
    return found


def _of_loss(loss: Loss) -> Goal | None:
    op, target, ignorant = loss.op, loss.target.detach(), torch.zeros_like(loss.prediction)
    if op.name == "nll_loss":
        ignorant = ignorant.log_softmax(1 if ignorant.dim() > 1 else 0)
    elif op.name == "binary_cross_entropy":
        ignorant = ignorant + 0.5
    elif loss.kind == "regression":
        if target.shape != ignorant.shape:
            return None
        ignorant = ignorant + target.to(ignorant.dtype).mean()

    def plain(value: Tensor) -> Tensor:
        options = {name: option for name, option in op.kwargs.items() if name not in ("input", "target")}
        return getattr(F, op.name)(value, target, *op.args[2:], **options)

    return Goal(loss.kind, loss.prediction, target, op, plain, ignorant)


def _by_hand(record: Record, labels: dict[int, Tensor]) -> Iterator[Goal]:
    for op in record.ops:
        if op.inputs and op.inputs[0].requires_grad and op.outputs and op.direct:
            goal = None
            if op.name in ("log_softmax", "softmax") and op.outputs[0].dim() > 1:
                goal = _classes(record, op, list(labels.values()))
            elif op.name in ("sigmoid", "logsigmoid"):
                goal = _binary(record, op, list(labels.values()))
            elif op.name in ("sub", "__sub__", "rsub", "__rsub__"):
                goal = _difference(record, op, labels)
            if goal is not None:
                yield goal


def _classes(record: Record, op: Op, labels: list[Tensor]) -> Goal | None:
    """(Log-)softmax over K classes, out of which the class of each sample is picked."""
    out, dim = op.outputs[0], op.argument(1, "dim")
    dim = -1 if dim is None else dim
    shape, num_classes = out.select(dim, 0).shape, out.shape[dim]
    for label in labels:
        alike = label.numel() == shape.numel() > 1 and label.shape[:1] == out.shape[:1]
        is_index = not label.is_floating_point() and label.dtype != torch.bool
        if not alike or not is_index or not 0 <= int(label.min()) <= int(label.max()) < num_classes:
            continue
        if _meet(record, out, label):
            target = label.detach().reshape(shape).long()
            plain = partial(_cross_entropy, target=target, dim=dim)
            return Goal("classes", op.inputs[0], target, op, plain, torch.zeros_like(out))
    return None


def _cross_entropy(value: Tensor, target: Tensor, dim: int) -> Tensor:
    return F.cross_entropy(value.movedim(dim, 1), target)


def _binary(record: Record, op: Op, labels: list[Tensor]) -> Goal | None:
    out = op.outputs[0]
    for label in labels:
        alike = label.numel() == out.numel() > 1 and label.shape[:1] == out.shape[:1]  # (B,) and (B, 1) are
        if alike and bool(((label == 0) | (label == 1)).all()) and _meet(record, out, label):
            target = label.detach().to(out.dtype).reshape(out.shape)
            plain = partial(F.binary_cross_entropy_with_logits, target=target)
            return Goal("binary", op.inputs[0], target, op, plain, torch.zeros_like(out))
    return None


def _difference(record: Record, op: Op, labels: dict[int, Tensor]) -> Goal | None:
    """Prediction minus label, whose square or magnitude is taken next."""
    prediction = next((leaf for leaf in op.inputs if leaf.requires_grad), None)
    label = next((leaf for leaf in op.inputs if id(leaf) in labels), None)
    if prediction is None or label is None or prediction.shape != label.shape or not prediction.dim():
        return None
    if prediction.is_complex():  # torch has no such loss
        return None
    takers = record.takers(op.outputs[0])
    if not any(item.name in _SIZES or (item.name in _PRODUCTS and len(item.inputs) > 1) for item in takers):
        return None
    target = label.detach().to(prediction.dtype)
    ignorant = torch.zeros_like(prediction) + target.mean()
    return Goal("regression", prediction, target, op, partial(F.mse_loss, target=target), ignorant)


def _meet(record: Record, one: Tensor, other: Tensor) -> bool:
    """Whether a call takes both of two tensors, as they are or prepared for it."""
    first, second = _prepared(record, one), _prepared(record, other)
    return any(
        any(id(leaf) in first for leaf in op.inputs) and any(id(leaf) in second for leaf in op.inputs)
        for op in record.ops
    )


def _prepared(record: Record, tensor: Tensor) -> set[int]:
    """The tensor in other shapes, under a logarithm, or as one-hot vectors, by identity."""
    found = {id(tensor)}
    for op in record.named(*_PREPARING):
        if op.inputs and id(op.inputs[0]) in found:
            found |= {id(leaf) for leaf in op.outputs}
    return found
