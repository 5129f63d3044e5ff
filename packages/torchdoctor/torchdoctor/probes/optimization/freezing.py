"""Weights that the program means to freeze, and goes on training."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any

from torch import nn

from torchdoctor import source
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running.subject import Subject
from torchdoctor.running.training import trained_weights

INEFFECTIVE_FREEZING = Defect(
    "ineffective-freezing",
    "warning",
    "Torch does not read this attribute: the weights are trained like all others.",
    shown_by=Evidence("measured", "the attributes of weights and modules were compared with what the optimizer trains"),
)
_NAME = "requires_grad"
_ALIKE = 0.9  # of its letters: require_grad, requires_grads


def freezing(subject: Subject) -> Iterator[Finding]:
    """Looks for an attribute of a weight or a module that is false, resembles `requires_grad`, and freezes nothing.

    A tensor takes any attribute, so that a misspelt one goes unnoticed; on a module, `requires_grad` itself is such an
    attribute. A module whose class has an attribute of that name means something else by it.
    """
    optimized = trained_weights(subject)
    thawed: dict[tuple[str, str], set[int]] = defaultdict(set)  # trained weights, by the attribute and its owner
    for owner, name, weights in _without_effect(subject.model):
        kind = "a parameter" if isinstance(owner, nn.Parameter) else f"a module ({type(owner).__name__})"
        thawed[name, kind] |= optimized.intersection(map(id, weights))
    for (name, kind), trained in thawed.items():
        if trained:
            message = (
                f"{name} = False on {kind} is an attribute of the program's own: {len(trained)} tensors are trained"
            )
            fix = "parameter.requires_grad = False" if kind == "a parameter" else "module.requires_grad_(False)"
            yield Finding(INEFFECTIVE_FREEZING, _assigned(subject, name), message, fix)


PROBE = Probe(look=freezing, defects=(INEFFECTIVE_FREEZING,), needs=(Need.BATCHES, Need.WEIGHTS), is_light=True)


def _without_effect(model: nn.Module) -> Iterator[tuple[Any, str, list[nn.Parameter]]]:
    """Weights and modules with such an attribute, its name, and the weights that it leaves as they are."""
    for weight in model.parameters():
        if weight.requires_grad:
            yield from ((weight, name, [weight]) for name in _misspelt(weight))
    for module in model.modules():
        weights = [weight for weight in module.parameters() if weight.requires_grad]
        names = [name for name in (_NAME, *_misspelt(module)) if vars(module).get(name) is False]
        yield from ((module, name, weights) for name in names if weights and source.assignment(module, name) is None)


def _misspelt(owner: Any) -> list[str]:
    names = [name for name, value in vars(owner).items() if value is False and name != _NAME]
    return [name for name in names if SequenceMatcher(None, name, _NAME).ratio() >= _ALIKE]


def _assigned(subject: Subject, name: str) -> Place | None:
    """The first line that assigns such an attribute: of the module's own classes, or of its files."""
    nodes = [(place.file, node) for place, node in source.statements(*source.classes_of(subject.model))]
    nodes += [(file, node) for file in subject.files for node in ast.walk(source.tree(file))]
    for file, node in nodes:
        if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store):
            return Place(file, node.lineno)
    return None
