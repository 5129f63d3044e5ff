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

    Only norms inside a part of the model that is frozen as a whole count: its weights take no gradient, or no optimizer
    has them and the step runs it without gradients. The slow copy of a network that is trained (a target, a teacher)
    does not count: its statistics are meant to follow.
    """
    parts = dict(subject.model.named_modules())
    optimised = {
        id(p) for optimizer in subject.trainer.optimizers for group in optimizer.param_groups for p in group["params"]
    }
    frozen = {name: part for name, part in parts.items() if name and _is_frozen(part, optimised)}
    trained = [_shapes(part) for part in parts.values() if not _is_frozen(part, optimised)]
    norms: dict[str, tuple[nn.Module, Tensor]] = {}
    for name, part in frozen.items():
        root = min((other for other in frozen if f"{name}.".startswith(f"{other}.")), key=len)
        mean = getattr(part, "running_mean", None)
        is_copy = _shapes(parts[root]) in trained
        if isinstance(part, nn.modules.batchnorm._NormBase) and mean is not None and part is not parts[root]:
            norms |= {} if is_copy else {name: (parts[root], mean.clone())}
    if not norms or (step := subject.record(subject.batches[0])).error is not None:  # if it raises, another probe tells
        return
    calls = {op.module: op for op in step.record.named("batch_norm")}
    moved = [
        name
        for name, (root, mean) in norms.items()
        if not parts[name].running_mean.equal(mean)  # type: ignore[operator,union-attr]  # a tensor
        and (_is_frozen(root, None) or (parts[name] in calls and not calls[parts[name]].grad))
    ]
    if moved:
        message = f"one training step moves the running statistics of {len(moved)} frozen norms, first {moved[0]}"
        root = next(name for name, part in parts.items() if part is norms[moved[0]][0])
        fix = f"self.{root}.requires_grad_(False).eval()"
        without = source.without_gradients(calls[parts[moved[0]]].places) if parts[moved[0]] in calls else None
        yield Finding(FROZEN_NORM_MOVES, _place(subject) or without, message, fix)
        return
    yield "the statistics of frozen norms stay"


def _is_frozen(part: nn.Module, optimised: set[int] | None) -> bool:
    """Whether no weight of a part takes a gradient, or none is optimised, where that is told."""
    parameters = list(part.parameters())
    trained = [p for p in parameters if p.requires_grad and (optimised is None or id(p) in optimised)]
    return bool(parameters) and not trained


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
