"""Contrastive losses whose positives are not the matching pairs."""

from collections.abc import Iterator

import torch
from torch import Tensor

from torchdoctor.evidence.dependence import evaluation_step, map_tensors, relative_change
from torchdoctor.evidence.unlearnable import LOSS_NOT_DECREASING
from torchdoctor.findings import Finding
from torchdoctor.probe import Probe
from torchdoctor.running.batches import num_samples
from torchdoctor.running.losses import Loss
from torchdoctor.running.steps import Step
from torchdoctor.running.subject import Subject

_LOOKED_AT = 6
_ORDERS = ("randperm", "flip", "roll", "sort", "argsort", "flipud")


def positives(subject: Subject, stands_out: float = 3.0) -> Iterator[Finding | str]:
    """Replaces one sample at a time, and looks which row and which column of the similarities (B, B) change.

    Where the target of row i is a number that the step makes itself, arange above all, the column that it names must be
    that of the same sample: queries and keys in different orders leave nothing to learn. He et al. 2020 shuffle the
    keys for BatchNorm, and put them back.

    Args:
        subject: the training that has just begun.
        stands_out: change of a sample's own row, times that of any other.
    """
    batch = subject.batches[0]
    size = num_samples(batch)
    if size is None or size < _LOOKED_AT:
        return
    before = evaluation_step(subject, batch, training=True)
    pair_losses = [(number, loss) for number, loss in enumerate(before.losses) if _is_of_pairs(before, loss, size)]
    if not pair_losses:
        return
    wrong = dict.fromkeys((number for number, _ in pair_losses), 0)
    for sample in range(_LOOKED_AT):
        other = map_tensors(batch, lambda leaf, sample=sample: _replaced(leaf, sample))
        after = evaluation_step(subject, other, training=True).losses
        for number, loss in pair_losses:
            place = (
                _row_and_column(loss.prediction, after[number].prediction, stands_out) if number < len(after) else None
            )
            if place is None:
                return
            wrong[number] += int(loss.target[place[0]]) != place[1]
    number, loss = max(pair_losses, key=lambda item: wrong[item[0]])
    if wrong[number] * 2 > _LOOKED_AT:
        ancestors = before.record.ancestors(loss.prediction)
        orders = [op for op in before.record.named(*_ORDERS) if any(id(out) in ancestors for out in op.outputs)]
        message = f"{loss.op.name} of {size} × {size} similarities: of {_LOOKED_AT} samples, {wrong[number]} are not "
        message += "their own positives, as rows and columns are in different orders"
        fix = "keys = keys[order.argsort()]  # the order of the queries again"
        yield Finding(LOSS_NOT_DECREASING, (orders or [loss.op])[-1].place, message, fix)
        return
    yield "positives of the contrastive loss are pairs"


PROBE = Probe(look=positives, defects=(LOSS_NOT_DECREASING,), is_light=True)


def _is_of_pairs(step: Step, loss: Loss, size: int) -> bool:
    square = loss.kind == "classes" and tuple(loss.prediction.shape) == (size, size)
    return square and loss.target.dim() == 1 and not step.is_from_data(loss.target)


def _replaced(leaf: Tensor, sample: int) -> Tensor:
    leaf = leaf.clone()
    leaf[sample] = leaf[(sample + len(leaf) // 2) % len(leaf)]
    return leaf


def _row_and_column(before: Tensor, after: Tensor, stands_out: float) -> tuple[int, int] | None:
    """The row and the column that changed, if one of each stands out."""
    changed, lines = relative_change(before, after), []
    for dim in (1, 0):
        (first, second), (number, _) = (part.tolist() for part in torch.topk(changed.sum(dim), 2))
        if first < stands_out * second:
            return None
        lines.append(number)
    return lines[0], lines[1]
