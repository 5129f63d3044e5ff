"""Frozen batch norms whose statistics go on moving."""

import ast
from collections.abc import Iterator

from torch import Tensor, nn

from playbook.doctor import source
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.subject import Subject

FROZEN_NORM_MOVES = Defect(
    "frozen-norm-moves",
    "warning",
    "The frozen features shift with every batch, and evaluation uses what the statistics have become.",
    shown_by=Evidence("measured", "running statistics were compared before and after a training step"),
)
DEFECTS = (FROZEN_NORM_MOVES,)
LIGHT = True


def frozen_norms(subject: Subject) -> Iterator[Finding | str]:
    """Compares the running statistics of batch norms without trained weights before and after a training step.

    Only norms inside a part of the model that is frozen as a whole count, and not the slow copy of a network that is
    trained (a target, a teacher): its statistics are meant to follow.
    """
    parts = dict(subject.model.named_modules())
    frozen = {name: part for name, part in parts.items() if name and _is_frozen(part)}
    trained = [_shapes(part) for part in parts.values() if not _is_frozen(part)]
    norms: dict[str, tuple[nn.Module, Tensor]] = {}
    for name, part in frozen.items():
        root = min((other for other in frozen if f"{name}.".startswith(f"{other}.")), key=len)
        mean = getattr(part, "running_mean", None)
        is_copy = _shapes(parts[root]) in trained
        if isinstance(part, nn.modules.batchnorm._NormBase) and mean is not None and part is not parts[root]:
            norms |= {} if is_copy else {name: (parts[root], mean.clone())}
    if not norms or subject.record(subject.batches[0]).error is not None:  # if it raises, another probe tells
        return
    moved = [name for name, (_, mean) in norms.items() if not parts[name].running_mean.equal(mean)]  # type: ignore[operator,union-attr]  # a tensor
    if moved:
        message = f"one training step moves the running statistics of {len(moved)} frozen norms, first {moved[0]}"
        root = next(name for name, part in parts.items() if part is norms[moved[0]][0])
        fix = f"self.{root}.requires_grad_(False).eval()"
        yield Finding(FROZEN_NORM_MOVES, _place(subject), message, fix)
        return
    yield "the statistics of frozen norms stay"


def _is_frozen(part: nn.Module) -> bool:
    parameters = list(part.parameters())
    return bool(parameters) and not any(parameter.requires_grad for parameter in parameters)


def _shapes(part: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(parameter.shape) for parameter in part.parameters()]


def _place(subject: Subject) -> Place | None:
    """Where gradients are turned off."""
    classes = source.classes_in(subject.model)
    for place, node in source.statements(*classes):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Attribute) and target.attr == "requires_grad" for target in targets):
            return place
    return source.first_call(classes, "requires_grad_", "freeze") or source.call_beside(classes, "requires_grad_")
