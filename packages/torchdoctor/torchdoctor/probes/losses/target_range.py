"""Targets that the model's last activation cannot reach."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from torchdoctor.evidence import origins
from torchdoctor.findings import Defect, Evidence, Finding
from torchdoctor.probe import Probe
from torchdoctor.running.losses import SHAPE_ONLY
from torchdoctor.running.record import Op
from torchdoctor.running.subject import Subject

UNREACHABLE_TARGETS = Defect(
    "unreachable-targets",
    "critical",
    "No weights can predict them: the loss stays far above that of a linear output.",
    explains=("loss-not-decreasing", "bad-initial-loss", "dead-units"),
    shown_by=Evidence(
        "measured", "the targets of the first batches were compared with the range of the last activation"
    ),
)
_RANGES = {
    "relu": (0.0, math.inf),
    "softplus": (0.0, math.inf),
    "exp": (0.0, math.inf),
    "relu6": (0.0, 6.0),
    "sigmoid": (0.0, 1.0),
    "softmax": (0.0, 1.0),
    "hardsigmoid": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "softsign": (-1.0, 1.0),
}


def target_range(subject: Subject, share: float = 0.1, rounding: float = 1e-2) -> Iterator[Finding | str]:
    """Compares the targets of regressions with the range of the activation that made their predictions.

    Calls that only change the shape are looked through; an activation whose result is scaled or shifted afterwards has
    another range, and is none here. Targets count as outside where they are so by more than 0.01 of their spread.

    Args:
        subject: the training that has just begun.
        share: of the targets that are out of range.
        rounding: share of their spread by which they are so.
    """
    compared: dict[str, tuple[Op, list[Tensor]]] = {}  # by activation
    regressions = 0
    for step in subject.steps():
        for loss in (loss for loss in step.losses if loss.kind == "regression"):
            regressions += 1
            maker = step.record.producer(loss.prediction, SHAPE_ONLY)
            name = maker.name.removesuffix("_") if maker is not None else ""
            if maker is not None and name in _RANGES:
                compared.setdefault(name, (maker, []))[1].append(loss.target.detach().flatten().double())
    if not regressions:
        return
    for name, (maker, some) in compared.items():
        targets, (low, high) = torch.cat(some), _RANGES[name]
        slack = rounding * float(targets.std()) if len(targets) > 1 else 0.0
        outside = float(((targets < low - slack) | (targets > high + slack)).double().mean())
        if outside >= share:
            least, most = float(targets.min()), float(targets.max())
            limits = f"from {low:g} to {high:g}" if math.isfinite(high) else f"of at least {low:g}"
            message = (
                f"{name} gives values {limits}; {outside:.0%} of the targets, {least:.3g} to {most:.3g}, are others"
            )
            fix = "return prediction  # as the last layer gives it, without an activation"
            yield Finding(UNREACHABLE_TARGETS, origins.called_layer_line(subject.model, maker), message, fix)
            return
    yield "the last layer can reach the targets"


PROBE = Probe(look=target_range, defects=(UNREACHABLE_TARGETS,), is_light=True)
