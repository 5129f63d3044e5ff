"""Predictions and targets of a loss that belong to different samples."""

from collections.abc import Iterator

import torch
from torch import Tensor

from torchdoctor.evidence.dependence import evaluation_step, relative_change, with_duplicate
from torchdoctor.findings import Defect, Evidence, Finding
from torchdoctor.probe import Probe
from torchdoctor.running.batches import num_samples
from torchdoctor.running.losses import Loss
from torchdoctor.running.subject import Subject

MISORDERED_TARGETS = Defect(
    "misordered-targets",
    "critical",
    "The loss compares each prediction with the target of another sample or position.",
    explains=("loss-not-decreasing",),
    shown_by=Evidence("experiment", "one sample was replaced, and prediction and target were compared"),
)
_CHANGED = 1e-6


def target_order(subject: Subject, least: float = 0.5) -> Iterator[Finding | str]:
    """Puts sample 0 in the place of sample 1, in evaluation mode: where a target changes, its prediction must as well.

    Reported is a loss in which fewer than half of the predictions beside changed targets change, and more than half of
    those that change stand elsewhere: codes of a vector quantiser may stay as they are, but not change elsewhere.
    Targets that depend on the whole batch, as standardised returns, are left out.

    Args:
        subject: the training that has just begun.
        least: share of the predictions beside changed targets that change.
    """
    batch = subject.batches[0]
    number = num_samples(batch) or 0
    changed = with_duplicate(batch) if number >= 3 else None
    if changed is None or not subject.accepts(changed):  # an episode has as many samples of every class
        return
    before, after = (evaluation_step(subject, each, training=True).losses for each in (batch, changed))
    changes = [(one, *_changes(one, two)) for one, two in zip(before, after, strict=False)]
    telling = [
        (loss, moved, wanted)
        for loss, moved, wanted in changes
        if moved.shape == wanted.shape and moved.any() and 0 < int(wanted.sum()) <= wanted.numel() / number
    ]
    for loss, moved, wanted in telling:
        share, beside = float(moved[wanted].double().mean()), float(wanted[moved].double().mean())
        if max(share, beside) < least:
            message = (
                f"of the predictions beside {int(wanted.sum())} targets that change with a sample, {share:.0%} change"
            )
            fix = "# flatten logits and targets in the same order: logits.transpose(0, 1) for (T, B, V) beside (B, T)"
            yield Finding(MISORDERED_TARGETS, loss.op.place, message, fix)
            return
    if telling:
        yield "each target stands beside the prediction of its sample"


PROBE = Probe(look=target_order, defects=(MISORDERED_TARGETS,), is_light=True)


def _changes(one: Loss, two: Loss) -> tuple[Tensor, Tensor]:
    """Which predictions and which targets of a loss change, in the shape of the target; nothing of another loss."""
    shapes = [(loss.op.name, loss.prediction.shape, loss.target.shape) for loss in (one, two)]
    if shapes[0] != shapes[1]:
        return torch.zeros(0, dtype=torch.bool), torch.zeros(0, dtype=torch.bool)
    moved, wanted = relative_change(one.prediction, two.prediction) > _CHANGED, one.target != two.target
    if one.kind == "classes" and moved.dim() > 1:
        wanted = wanted.any(1) if wanted.shape == moved.shape else wanted  # distributions
        moved = moved.any(1)
    return moved, wanted
