"""Finds the prediction, the labels and the standard loss of a recorded training step."""

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
class SupervisedLoss:
    """A prediction, its labels, and the standard loss between them.

    Args:
        kind: classes, binary or regression.
        prediction: logits, log-probabilities, probabilities or values, as the step has them.
        target: the labels, computed from the batch alone.
        op: the call of the step that compares, or prepares to.
        standard: computes torch's loss of such a prediction.
        baseline: an uninformed prediction: equal logits, or the mean of the labels.
    """

    kind: str
    prediction: Tensor
    target: Tensor
    op: Op
    standard: Callable[[Tensor], Tensor]
    baseline: Tensor


def supervised_losses(step: Step) -> list[SupervisedLoss]:
    """The supervised losses of a recorded step, whether of torch or written by hand."""
    labels = _label_tensors(step)
    losses = [_from_torch_loss(loss) for loss in step.losses if id(loss.target) in labels and loss.prediction.dim()]
    return list(filter(None, losses)) or list(_handwritten_losses(step.record, labels))


def _label_tensors(step: Step) -> dict[int, Tensor]:
    """Tensors computed from the batch without weights or random numbers, by id."""
    labels = {id(leaf): leaf for leaf in tensors(step.batch)}
    for op in step.record.ops:
        known = [id(leaf) in labels for leaf in op.inputs if leaf.dim() or id(leaf) in labels]
        if any(known) and all(known) and op.name not in _FIXED:
            labels |= {id(leaf): leaf for leaf in op.outputs if not leaf.requires_grad}
    return labels


def _from_torch_loss(loss: Loss) -> SupervisedLoss | None:
    op, target, baseline = loss.op, loss.target.detach(), torch.zeros_like(loss.prediction)
    if op.name == "nll_loss":
        baseline = baseline.log_softmax(1 if baseline.dim() > 1 else 0)
    elif op.name == "binary_cross_entropy":
        baseline = baseline + 0.5
    elif loss.kind == "regression":
        if target.shape != baseline.shape:
            return None
        baseline = baseline + target.to(baseline.dtype).mean()

    def standard(value: Tensor) -> Tensor:
        options = {name: option for name, option in op.kwargs.items() if name not in ("input", "target")}
        return getattr(F, op.name)(value, target, *op.args[2:], **options)

    return SupervisedLoss(loss.kind, loss.prediction, target, op, standard, baseline)


def _handwritten_losses(record: Record, labels: dict[int, Tensor]) -> Iterator[SupervisedLoss]:
    for op in record.ops:
        if op.inputs and op.inputs[0].requires_grad and op.outputs and op.direct:
            loss = None
            if op.name in ("log_softmax", "softmax") and op.outputs[0].dim() > 1:
                loss = _handwritten_cross_entropy(record, op, list(labels.values()))
            elif op.name in ("sigmoid", "logsigmoid"):
                loss = _handwritten_binary(record, op, list(labels.values()))
            elif op.name in ("sub", "__sub__", "rsub", "__rsub__"):
                loss = _handwritten_regression(record, op, labels)
            if loss is not None:
                yield loss


def _handwritten_cross_entropy(record: Record, op: Op, labels: list[Tensor]) -> SupervisedLoss | None:
    """A (log-)softmax over K classes from which each sample's class is picked."""
    out, dim = op.outputs[0], op.argument(1, "dim")
    dim = -1 if dim is None else dim
    shape, num_classes = out.select(dim, 0).shape, out.shape[dim]
    for label in labels:
        alike = label.numel() == shape.numel() > 1 and label.shape[:1] == out.shape[:1]
        is_index = not label.is_floating_point() and label.dtype != torch.bool
        if not alike or not is_index or not 0 <= int(label.min()) <= int(label.max()) < num_classes:
            continue
        if _are_combined(record, out, label):
            target = label.detach().reshape(shape).long()
            standard = partial(_cross_entropy, target=target, dim=dim)
            return SupervisedLoss("classes", op.inputs[0], target, op, standard, torch.zeros_like(out))
    return None


def _cross_entropy(value: Tensor, target: Tensor, dim: int) -> Tensor:
    return F.cross_entropy(value.movedim(dim, 1), target)


def _handwritten_binary(record: Record, op: Op, labels: list[Tensor]) -> SupervisedLoss | None:
    out = op.outputs[0]
    for label in labels:
        alike = label.numel() == out.numel() > 1 and label.shape[:1] == out.shape[:1]  # (B,) and (B, 1) are
        if alike and bool(((label == 0) | (label == 1)).all()) and _are_combined(record, out, label):
            target = label.detach().to(out.dtype).reshape(out.shape)
            standard = partial(F.binary_cross_entropy_with_logits, target=target)
            return SupervisedLoss("binary", op.inputs[0], target, op, standard, torch.zeros_like(out))
    return None


def _handwritten_regression(record: Record, op: Op, labels: dict[int, Tensor]) -> SupervisedLoss | None:
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
    baseline = torch.zeros_like(prediction) + target.mean()
    return SupervisedLoss("regression", prediction, target, op, partial(F.mse_loss, target=target), baseline)


def _are_combined(record: Record, one: Tensor, other: Tensor) -> bool:
    """Whether some call takes both tensors, directly or reshaped."""
    first, second = _reshaped(record, one), _reshaped(record, other)
    return any(
        any(id(leaf) in first for leaf in op.inputs) and any(id(leaf) in second for leaf in op.inputs)
        for op in record.ops
    )


def _reshaped(record: Record, tensor: Tensor) -> set[int]:
    """The ids of a tensor and of its reshaped, logarithmic and one-hot versions."""
    ids = {id(tensor)}
    for op in record.named(*_PREPARING):
        if op.inputs and id(op.inputs[0]) in ids:
            ids |= {id(leaf) for leaf in op.outputs}
    return ids
