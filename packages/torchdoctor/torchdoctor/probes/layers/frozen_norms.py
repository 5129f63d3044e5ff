"""Frozen batch norms whose statistics go on moving."""

import ast
from collections.abc import Iterator

from torch import Tensor, nn

from torchdoctor import source
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.subject import Subject
from torchdoctor.running.training import trained_weights

FROZEN_NORM_MOVES = Defect(
    "frozen-norm-moves",
    "warning",
    "The frozen features shift with every batch, and evaluation uses what the statistics have become.",
    shown_by=Evidence("measured", "running statistics were compared before and after a training step"),
)


def frozen_norms(subject: Subject) -> Iterator[Finding | str]:
    """Compares the running statistics of batch norms without trained weights before and after a training step.

    Only norms inside a part of the model that is frozen as a whole count: its weights take no gradient, or no optimizer
    has them and the step runs it without gradients. The slow copy of a network that is trained (a target, a teacher)
    does not count: its statistics are meant to follow.
    """
    parts = dict(subject.model.named_modules())
    optimised = trained_weights(subject)
    frozen = {name: part for name, part in parts.items() if name and _is_frozen(part, optimised)}
    trained = [_shapes(part) for part in parts.values() if not _is_frozen(part, optimised)]
    roots = {name: min((other for other in frozen if f"{name}.".startswith(f"{other}.")), key=len) for name in frozen}
    means: dict[str, Tensor] = {
        name: part.running_mean.clone()
        for name, part in frozen.items()
        if isinstance(part, nn.modules.batchnorm._NormBase)
        and part.running_mean is not None
        and _shapes(parts[roots[name]]) not in trained
    }
    if not means or (step := subject.record(subject.batches[0])).error is not None:  # if it raises, another probe tells
        return
    calls = {op.module: op for op in step.record.named("batch_norm")}
    moved = [
        name
        for name, mean in means.items()
        if not mean.equal(parts[name].get_buffer("running_mean"))
        and (_is_frozen(parts[roots[name]], None) or (parts[name] in calls and not calls[parts[name]].grad))
    ]
    if all(roots[name] == name for name in moved):  # a norm alone is no frozen part
        yield "the statistics of frozen norms stay"
        return
    message = f"one training step moves the running statistics of {len(moved)} frozen norms, first {moved[0]}"
    owners = [f"self.{root}" for root in dict.fromkeys(roots[name] for name in moved)]
    fix = f"{owners[0]}.requires_grad_(False).eval()"
    if len(owners) > 1:
        fix = f"for part in ({', '.join(owners)}): part.eval()"
    if subject.script is not None:
        fix += "  # after each call of train()"
    call = calls.get(parts[moved[0]])
    place = _place(subject) or (source.without_gradients(call.places) if call else None)
    yield Finding(FROZEN_NORM_MOVES, place, message, fix)


PROBE = Probe(look=frozen_norms, defects=(FROZEN_NORM_MOVES,), is_light=True)


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
        if isinstance(node, ast.Attribute) and node.attr == "requires_grad" and isinstance(node.ctx, ast.Store):
            return place
    return source.first_call(classes, "requires_grad_", "freeze") or source.call_beside(classes, "requires_grad_")
