"""Predictions and targets that broadcast against each other in the loss."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import torch
from torch import Tensor

from torchdoctor.findings import Defect, Finding, NotLookedAt
from torchdoctor.probe import Probe
from torchdoctor.running.batches import num_samples
from torchdoctor.running.losses import REGRESSION, SHAPE_ONLY
from torchdoctor.running.record import Op, Record
from torchdoctor.running.steps import Step
from torchdoctor.running.subject import Subject

BAD_BROADCAST = Defect(
    "bad-broadcast",
    "critical",
    "Every prediction is compared with every target: the optimum is the mean of all targets.",
    explains=("crash", "loss-not-decreasing"),
)
_SUMS = ("add", "radd", "iadd", "sub", "rsub", "isub", "mul", "rmul")
_PAIRED = (*REGRESSION, "binary_cross_entropy_with_logits", "sub", "rsub", "__sub__", "__rsub__", "mul", "eq", "div")


def broadcast(subject: Subject) -> Iterator[Finding | str | NotLookedAt]:
    """Records a training step: a prediction (B, 1) and a target (B,) of the batch make a result (B, B).

    Reported when both are as long as the batch, the result is larger than either, and the target comes from the batch
    as it is, or is computed from it without gradients and meets a prediction whose last dimension nobody added: losses
    over pairs of samples give their operands their dimensions on purpose. So it is with (B, 1, N) and (B, N, 1),
    unless one of the two got a dimension for it. What the loss is made of counts without gradients too, as an
    advantage. A prediction that is (B, B) already, of (B,) and (B, 1), is reported where it meets the batch's (B,), in
    a loss of torch's or where nobody gave the (B, 1) its last dimension. Comparisons with the batch that a metric
    counts, in training or validation, are a warning, and so are several predictions of a sample (B, N) that a loss of
    torch's, which warns of it, compares with one target (B, 1).
    """
    step = subject.step()
    least = 1 if num_samples(step.batch) == 1 else 2
    record, weights = step.record, {id(weight) for weight in subject.model.parameters()}

    def is_learned(tensor: Tensor, op: Op) -> bool:  # what a loss of torch's compares with may come from a network
        return tensor.requires_grad or (op.name not in REGRESSION and not weights.isdisjoint(record.ancestors(tensor)))

    kin = record.ancestors(step.loss) if step.loss is not None else set()
    for op in sorted(record.ops, key=lambda op: not op.grad):
        if op.name not in _PAIRED or len(op.inputs) < 2 or not (op.grad or id(op.out) in kin):
            continue
        left, right = op.inputs[:2]
        square = right.dim() == 1 < len(right) and left.shape == 2 * right.shape
        square = square and (op.name in REGRESSION or _is_of_column_and_row(record, left))
        if not (square or _broadcasts(left, right, least)) or not (is_learned(left, op) or is_learned(right, op)):
            continue
        target = right if is_learned(left, op) else left
        are_pairs = left.dim() == right.dim() and any(_gains_dimension(record, item) for item in (left, right))
        if are_pairs or is_learned(target, op):
            continue
        wide = max(left, right, key=Tensor.dim)
        is_from_batch = id(record.origin(target, SHAPE_ONLY)) in step.batch_ids
        is_meant = op.name not in REGRESSION and _is_widened(record, wide)
        if not is_from_batch and (not step.is_from_data(target) or is_meant):
            continue
        shapes = f"{tuple(left.shape)} and {tuple(right.shape)}"
        whole = tuple(torch.broadcast_shapes(left.shape, right.shape))
        message = f"{op.name} of {shapes} compares every prediction with every target: {whole}"
        yield Finding(BAD_BROADCAST, op.place, message, *_repair(op, left, right, is_learned(left, op)))
        return
    counted = (finding for counted in _steps(subject) for finding in _counted_hits(subject, counted))
    milder = next(chain(_repeated_targets(step), counted), None)
    if milder is not None:
        yield milder
        return
    regressions = [loss for loss in step.losses if loss.kind == "regression"]
    by_hand = [op for op in record.ops if op.name in _PAIRED and id(op.out) in kin and _compares(step, op)]
    if not step.losses and not by_hand:
        yield NotLookedAt(BAD_BROADCAST, "no line of the step compares a prediction with a target of the batch")
    elif (regressions or by_hand) and all(loss.prediction.shape == loss.target.shape for loss in regressions):
        yield "predictions and targets have the same shape in the loss"


PROBE = Probe(look=broadcast, defects=(BAD_BROADCAST,), is_light=True)


def _compares(step: Step, op: Op) -> bool:
    """Whether a call gets what the model has learned beside what comes from the batch alone."""
    learned = [leaf for leaf in op.inputs if leaf.requires_grad]
    return bool(learned) and any(not leaf.requires_grad and step.is_from_data(leaf) for leaf in op.inputs)


def _steps(subject: Subject) -> Iterator[Step]:
    yield subject.step()
    if subject.validates:
        yield subject.attempt(training=False)


def _repeated_targets(step: Step) -> Iterator[Finding]:
    """Findings of predictions (B, N) that a loss compares with targets (B, 1) of the batch."""
    for loss in step.losses:
        left, right, op = loss.prediction, loss.target, loss.op
        if loss.kind != "regression" or not op.grad or id(step.record.origin(right, SHAPE_ONLY)) not in step.batch_ids:
            continue
        if left.dim() == right.dim() > 1 and len(left) == len(right) > 1 and right[0].numel() == 1 < left[0].numel():
            impact = "Each target stands for all predictions of its sample."
            defect = replace(BAD_BROADCAST, severity="warning", impact=impact)
            shapes = f"{tuple(left.shape)} and {tuple(right.shape)}"
            message = f"{op.name} of {shapes} compares {left[0].numel()} predictions with each target"
            yield Finding(defect, op.place, message, "prediction[:, -1:]  # the one that the target belongs to")


def _counted_hits(subject: Subject, step: Step) -> Iterator[Finding]:
    """Findings of predicted classes that are compared with labels of another shape, and all of whose hits are added."""
    record, weights = step.record, {id(weight) for weight in subject.model.parameters()}
    for op in record.named("eq", "__eq__"):
        if len(op.inputs) < 2 or not _broadcasts(op.inputs[0], op.inputs[1], 2):
            continue
        left, right = op.inputs[:2]
        learned = [not weights.isdisjoint(record.ancestors(leaf)) for leaf in (left, right)]
        label = right if learned[0] else left
        hits = next((taker for taker in record.takers(op.out) if taker.name in ("float", "int", "to", "long")), op)
        sums = [taker for taker in record.takers(hits.out) if taker.name in ("sum", "mean") and len(taker.args) == 1]
        if sum(learned) != 1 or not sums or id(record.origin(label, SHAPE_ONLY)) not in step.batch_ids:
            continue
        defect = replace(BAD_BROADCAST, severity="warning", impact="The figure that is shown counts pairs of samples.")
        shapes = f"{tuple(left.shape)} and {tuple(right.shape)}"
        message = f"== of {shapes} compares every prediction with every label: {tuple(op.out.shape)}"
        yield Finding(defect, op.place, message, *_repair(op, left, right, learned[0]))


def _broadcasts(left: Tensor, right: Tensor, least: int) -> bool:
    if not left.dim() or not right.dim() or len(left) < least:
        return False
    try:
        shape = torch.broadcast_shapes(left.shape, right.shape)
    except RuntimeError:
        return False
    return len(left) == len(right) and shape.numel() > max(left.numel(), right.numel())


def _gains_dimension(record: Record, tensor: Tensor) -> bool:
    """Whether calls that only change shapes gave the tensor a dimension more."""
    return record.origin(tensor, SHAPE_ONLY).dim() < tensor.dim()


def _is_widened(record: Record, tensor: Tensor) -> bool:
    """Whether the tensor has its dimensions from a call that only changes shapes, as far back as its shape stays."""
    op = record.producer(tensor)
    if op is None or op.name in SHAPE_ONLY or op.argument(2, "keepdim", False) is True:
        return op is not None
    if op.name == "gather":  # its index says which values, one of each row
        return False
    before = next((leaf for leaf in op.inputs if leaf is not tensor and leaf.shape == tensor.shape), None)
    return before is not None and _is_widened(record, before)


def _is_of_column_and_row(record: Record, square: Tensor) -> bool:
    """Whether a tensor (B, B) comes of (B,) and (B, 1), the latter as a network gives it."""
    op = record.producer(square)
    while op is not None and (whole := [leaf for leaf in op.inputs if leaf.shape == square.shape]):
        op = record.producer(whole[0])
    parts = [] if op is None or op.name.strip("_") not in _SUMS else op.inputs
    columns = [part for part in parts if part.shape == (len(square), 1)]
    return len(parts) == 2 and len(columns) == 1 and not _is_widened(record, columns[0])


def _repair(op: Op, left: Tensor, right: Tensor, is_learned: bool) -> tuple[str, dict[str, str]]:
    """The fix, and the values for the repair where one of the two has a last dimension of 1 more than the other."""
    if left.dim() == right.dim() and left.movedim(-1, 1).shape == right.shape:
        return f"{'prediction' if is_learned else 'target'}.movedim(-1, 1)  # before {op.name}: channels second", {}
    wide = "prediction" if (left.dim() > right.dim()) == is_learned else "target"
    fix = f"{wide}.squeeze(-1)  # before {op.name.strip('_')}"
    sides = {"left": (left, right), "right": (right, left)}
    side = next((side for side, (one, other) in sides.items() if one.shape == (*other.shape, 1)), "")
    return fix, {"variant": f"squeeze {side}", "name": op.name} if side else {}
