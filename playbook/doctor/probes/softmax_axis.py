"""Attention weights that are normalised over another axis than the one that is summed."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from playbook.doctor import blame
from playbook.doctor.batches import num_samples
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.losses import SHAPE_ONLY
from playbook.doctor.record import Op
from playbook.doctor.scores import are_comparisons
from playbook.doctor.steps import Step
from playbook.doctor.subject import Subject
from playbook.doctor.weighted import WeightedSum, is_binary, weighted_sums

SOFTMAX_AXIS = Defect(
    "softmax-axis",
    "warning",
    "Attention does not choose between the things that are summed: their weights do not add up to 1.",
    shown_by=Evidence("experiment", "weighted sums were repeated with values of 1, and with softmax over each axis"),
)
DEFECTS = (SOFTMAX_AXIS,)
LIGHT = True
_EXACT = 1e-3  # in single precision, sums of weights differ from 1 by 1e-6; over another axis by 0.1 and more
_PROBABILITIES = ("softmax", "log_softmax", "gumbel_softmax", "sigmoid", "log", "logsigmoid", "one_hot")


def softmax_axis(subject: Subject) -> Iterator[Finding | str]:
    """Repeats each sum whose weights are a softmax, with values of 1: it must give 1 everywhere.

    Where it does so only with the softmax over another axis, the weights should be normalised over that one. Soft
    assignments are left alone: their softmax goes over the outputs of a layer (clusters, classes, experts), and they
    may be summed over samples. Scores that compare two things (q · k, or a layer with one output) are none. Also left
    alone are weights that are divided by their sum later or are right in another sum, and routing, which begins with
    scores that do not come from data and then sums the same values again.
    """
    step, size = subject.step(), num_samples(subject.batches[0])
    num_right, lines, summed, places = 0, set(), set(), set()
    for op in step.record.named("softmax"):
        sums = list(weighted_sums(step.record, op.out)) if op.direct and isinstance(op.out, Tensor) else []
        leaves = [leaf for item in sums for leaf in item.values]
        values = {(id(step.record.origin(leaf, SHAPE_ONLY | {"detach"})), _shape(op)) for leaf in leaves}
        is_first = op.places not in lines and summed.isdisjoint(values)
        lines.add(op.places)
        summed |= values
        if not values or not is_first:
            continue
        num_right += any(_is_one(item, op, _axis(op)) for item in sums if item.values)
        axis = _right_axis(step, op, sums, size)
        place = _line(subject, op)
        if axis is not None and place not in places:
            places.add(place)
            yield _finding(op, sums, axis, place)
    if num_right and not places:
        yield "softmax weights add up to 1 along the axis of their sum"


def _finding(op: Op, sums: list[WeightedSum], axis: int, place: Place | None) -> Finding:
    wrong = next(item for item in sums if item.values and _is_one(item, op, axis))
    totals = wrong.of_ones(op.again({}).nan_to_num())
    assert totals is not None, "the same calls have been repeated before"
    least, most = (f"{total.item():.2g}" for total in totals.aminmax())
    message = f"softmax over axis {_axis(op)} of {tuple(_shape(op))}, but the weighted sum goes over axis {axis}: "
    message += f"its weights add up to {least}" + (f" … {most}" if least != most else "")
    dim = -1 if axis == len(_shape(op)) - 1 else axis
    return Finding(SOFTMAX_AXIS, place, message, f"softmax(dim={dim})  # over what is summed")


def _right_axis(step: Step, op: Op, sums: list[WeightedSum], size: int | None) -> int | None:
    """The axis that the softmax should go over, if it goes over one that is surely wrong."""
    others = [axis for axis, length in enumerate(_shape(op)) if axis != _axis(op) and length > 1]
    weighted, alone = ([item for item in sums if bool(item.values) == is_weighted] for is_weighted in (True, False))
    if any(_is_one(item, op, _axis(op)) for item in weighted):
        return None
    if any(_is_one(item, op, axis) for item in alone for axis in others):  # to divide by it
        return None
    pairs = [(item, axis) for item in weighted for axis in others if _is_one(item, op, axis)]
    if not pairs or not (_is_batch(op, size) or are_comparisons(step, op.argument(0, "input"))):
        return None
    return next((axis for item, axis in pairs if _has_values(step, op, item)), None)


def _shape(op: Op) -> torch.Size:
    return op.argument(0, "input").shape  # that of the result may be changed in place


def _axis(op: Op) -> int:
    """The axis of a softmax, as F.softmax chooses it where `dim` is left out."""
    number, axis = len(_shape(op)), op.argument(1, "dim")
    implicit = 0 if number in (0, 1, 3) else 1
    return (implicit if axis is None else axis) % max(number, 1)


def _is_one(item: WeightedSum, op: Op, axis: int) -> bool:
    """Whether weights that are normalised over this axis add up to 1 in a sum, whatever the scores."""
    scores = torch.randn(_shape(op), generator=torch.Generator().manual_seed(0))
    totals = item.of_ones(scores.softmax(axis))
    return totals is not None and bool(((totals - 1).abs() < _EXACT).all())


def _is_batch(op: Op, size: int | None) -> bool:
    return _axis(op) == 0 and 1 < len(op.out) == size


def _has_values(step: Step, op: Op, item: WeightedSum) -> bool:
    """Whether what is summed are values from data, and not labels or probabilities, as in a loss."""
    for leaf in item.values:
        maker = step.record.producer(leaf, SHAPE_ONLY)
        if maker is not None and maker.name in _PROBABILITIES:
            return False
        if not leaf.is_floating_point() or is_binary(leaf) or not step.is_from_data(leaf):
            return False
        if id(op.out) in step.record.ancestors(leaf):
            return False
    return True


def _line(subject: Subject, op: Op) -> Place | None:
    """The line of `dim`: that of a layer is where the layer is made."""
    made = blame.layer(subject.model, op.module) if isinstance(op.module, nn.Softmax) else None
    return made or op.place
