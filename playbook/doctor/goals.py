"""What a supervised step is after: a prediction, and the plain loss that says how far it is from the batch's labels."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from playbook.doctor.losses import SHAPE_ONLY
from playbook.doctor.record import Op, Record
from playbook.doctor.steps import Step

_FIXED = {"multinomial", "bernoulli", "argmax", "topk", "rand_like", "randn_like", "zeros_like", "ones_like"}


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
    return _of_losses(step, labels) or _by_hand(step.record, labels)


def _of_batch(step: Step) -> dict[int, Tensor]:
    """Tensors computed from the batch without weights and without chance."""
    leaves = [leaf for leaf in pytree.tree_leaves(step.batch) if isinstance(leaf, Tensor)]
    found = {id(leaf): leaf for leaf in leaves}
    for op in step.record.ops:
        inputs = op.inputs
        if op.name in _FIXED or not any(id(leaf) in found for leaf in inputs):
            continue
        if all(id(leaf) in found or leaf.dim() == 0 for leaf in inputs):
            found |= {id(leaf): leaf for leaf in op.outputs if not leaf.requires_grad}
    return found


def _of_losses(step: Step, labels: dict[int, Tensor]) -> list[Goal]:
    found = []
    for loss in step.losses:
        if id(loss.target) not in labels or loss.prediction.dim() == 0:
            continue
        op, target, prediction = loss.op, loss.target.detach(), loss.prediction.detach()

        def plain(value: Tensor, op: Op = op, target: Tensor = target) -> Tensor:
            return getattr(F, op.name)(
                value, target, *op.args[2:], **{k: v for k, v in op.kwargs.items() if k not in ("input", "target")}
            )

        if loss.kind == "classes":
            ignorant = torch.zeros_like(prediction)
            ignorant = ignorant.log_softmax(1 if prediction.dim() > 1 else 0) if op.name == "nll_loss" else ignorant
        elif loss.kind == "binary":
            ignorant = torch.zeros_like(prediction) + (0.5 if op.name == "binary_cross_entropy" else 0.0)
        elif target.shape == prediction.shape:
            ignorant = torch.zeros_like(prediction) + target.to(prediction.dtype).mean()
        else:
            continue
        found.append(Goal(loss.kind, loss.prediction, target, op, plain, ignorant))
    return found


def _by_hand(record: Record, labels: dict[int, Tensor]) -> list[Goal]:
    found = []
    whole = [leaf for leaf in labels.values() if leaf.numel() > 1 and not leaf.is_floating_point()]
    integers = [leaf for leaf in whole if leaf.dtype != torch.bool]
    for op in record.ops:
        if not op.inputs or not op.inputs[0].requires_grad or not op.outputs or not op.direct:
            continue
        out = op.outputs[0]
        if op.name in ("log_softmax", "softmax") and out.dim() > 1:
            goal = _classes(record, op, out, integers)
        elif op.name in ("sigmoid", "logsigmoid"):
            goal = _binary(record, op, out, labels)
        elif op.name in ("sub", "__sub__", "rsub", "__rsub__"):
            goal = _difference(record, op, out, labels)
        else:
            continue
        if goal is not None:
            found.append(goal)
    return found


def _classes(record: Record, op: Op, out: Tensor, integers: list[Tensor]) -> Goal | None:
    """(Log-)softmax over K classes, out of which the class of each sample is picked."""
    logits = op.inputs[0].detach()
    dim = op.argument(1, "dim", -1)
    dim = dim % out.dim() if isinstance(dim, int) else out.dim() - 1
    shape = out.shape[:dim] + out.shape[dim + 1 :]
    kin = _descendants(record, out)
    picked = [item for item in record.ops if item.name in ("gather", "__getitem__", "take_along_dim", "mul", "__mul__")]
    picked = [item for item in picked if item.inputs and any(id(leaf) in kin for leaf in item.inputs)]
    for label in integers:
        same = label.numel() == shape.numel() and label.shape[:1] == out.shape[:1]
        if not same or int(label.max()) >= out.shape[dim] or int(label.min()) < 0:
            continue
        indices = _descendants(record, label)
        if not any(any(id(leaf) in indices for leaf in item.inputs) for item in picked):
            continue
        target = label.detach().reshape(shape)

        def plain(value: Tensor, target: Tensor = target) -> Tensor:
            return F.cross_entropy(value.movedim(dim, 1), target)

        return Goal("classes", op.inputs[0], target, op, plain, torch.zeros_like(logits))
    return None


def _binary(record: Record, op: Op, out: Tensor, labels: dict[int, Tensor]) -> Goal | None:
    for label in labels.values():
        alike = label.numel() == out.numel() > 1 and label.shape[:1] == out.shape[:1]  # (B,) and (B, 1) are
        if not alike or not bool(((label == 0) | (label == 1)).all()) or not _meet(record, out, label):
            continue
        target = label.detach().to(out.dtype).reshape(out.shape)

        def plain(value: Tensor, target: Tensor = target) -> Tensor:
            return F.binary_cross_entropy_with_logits(value, target)

        return Goal("binary", op.inputs[0], target, op, plain, torch.zeros_like(op.inputs[0]))
    return None


def _difference(record: Record, op: Op, out: Tensor, labels: dict[int, Tensor]) -> Goal | None:
    """Prediction minus label, whose square or magnitude is taken next."""
    if len(op.inputs) != 2:
        return None
    one, other = op.inputs
    prediction, label = (one, other) if id(other) in labels else (other, one)
    if (
        id(label) not in labels
        or not prediction.requires_grad
        or prediction.shape != label.shape
        or prediction.dim() == 0
    ):
        return None
    squares = ("pow", "__pow__", "square", "abs", "norm", "cosh", "huber_loss")
    if not any(
        item.name in squares or (item.name in ("mul", "__mul__") and len(item.inputs) > 1)
        for item in record.takers(out)
    ):
        return None
    target = label.detach()

    def plain(value: Tensor) -> Tensor:
        return F.mse_loss(value, target.to(value.dtype))

    return Goal("regression", prediction, target, op, plain, torch.zeros_like(prediction) + target.float().mean())


def _descendants(record: Record, tensor: Tensor) -> set[int]:
    """The tensor in other shapes, under a logarithm, or as one-hot vectors."""
    found = {id(tensor)}
    for op in record.ops:
        if (
            op.inputs
            and id(op.inputs[0]) in found
            and op.name in SHAPE_ONLY | {"log", "one_hot", "long", "bool", "scatter_", "clamp", "add"}
        ):
            found |= {id(leaf) for leaf in op.outputs}
    return found


def _meet(record: Record, one: Tensor, other: Tensor) -> bool:
    first, second = _descendants(record, one), _descendants(record, other)
    return any(
        any(id(leaf) in first for leaf in op.inputs) and any(id(leaf) in second for leaf in op.inputs)
        for op in record.ops
    )
