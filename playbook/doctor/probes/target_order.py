"""Predictions and targets of a loss that belong to different samples."""

from collections.abc import Iterator

import torch
from torch import Tensor

from playbook.doctor.batches import num_samples
from playbook.doctor.dependence import change, evaluated, mapped
from playbook.doctor.findings import Defect, Evidence, Finding
from playbook.doctor.losses import Loss
from playbook.doctor.subject import Subject

MISORDERED_TARGETS = Defect(
    "misordered-targets",
    "critical",
    "The loss compares each prediction with the target of another sample or position.",
    explains=("loss-not-decreasing",),
    shown_by=Evidence("experiment", "one sample was replaced, and prediction and target were compared"),
)
DEFECTS = (MISORDERED_TARGETS,)
LIGHT = True
_ROW = 1  # the sample that is replaced
_CHANGED, _LEAST = 1e-6, 0.5


def target_order(subject: Subject) -> Iterator[Finding | str]:
    """Puts sample 0 in the place of sample 1, in evaluation mode: where a target changes, its prediction must as well.

    Reported is a loss in which fewer than half of the predictions beside changed targets change, and more than half of
    those that change stand elsewhere: codes of a vector quantiser may stay as they are, but not change elsewhere.
    Targets that depend on the whole batch, as standardised returns, are left out.
    """
    batch = subject.batches[0]
    number = num_samples(batch) or 0
    if number < 3:
        return
    replaced = mapped(batch, lambda leaf: torch.cat([leaf[:1], leaf[:1], leaf[2:]]))
    before, after = (evaluated(subject, each, training=True).losses for each in (batch, replaced))
    looked = False
    for one, two in zip(before, after, strict=False):
        moved, wanted = _moved(one, two), _wanted(one, two)
        if moved is None or moved.shape != wanted.shape or not moved.any():
            continue
        if not 0 < int(wanted.sum()) <= wanted.numel() / number:
            continue
        looked = True
        share, beside = float(moved[wanted].double().mean()), float(wanted[moved].double().mean())
        if max(share, beside) < _LEAST:
            message = (
                f"of the predictions beside {int(wanted.sum())} targets that change with a sample, {share:.0%} change"
            )
            fix = "# flatten logits and targets in the same order: logits.transpose(0, 1) for (T, B, V) beside (B, T)"
            yield Finding(MISORDERED_TARGETS, one.op.place, message, fix)
            return
    if looked:
        yield "each target stands beside the prediction of its sample"


def _moved(one: Loss, two: Loss) -> Tensor | None:
    """Which predictions change, in the shape of the target."""
    if one.prediction.shape != two.prediction.shape or one.op.name != two.op.name:
        return None
    moved = change(one.prediction, two.prediction) > _CHANGED
    if one.kind == "classes" and moved.dim() > 1:
        return moved.any(1)
    return moved


def _wanted(one: Loss, two: Loss) -> Tensor:
    """Which targets change."""
    if one.target.shape != two.target.shape:
        return torch.zeros(0, dtype=torch.bool)
    changed = one.target != two.target
    is_distribution = one.kind == "classes" and changed.shape == one.prediction.shape and changed.dim() > 1
    return changed.any(1) if is_distribution else changed
