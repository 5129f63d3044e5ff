"""Layers that a step makes anew."""

from collections.abc import Iterator

from torch import nn

from playbook.doctor import blame
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.subject import Subject

LAYER_IN_FORWARD = Defect(
    "layer-in-forward",
    "critical",
    "Its weights are random in every call, and are neither trained nor saved.",
    explains=("eval-nondeterminism",),
    shown_by=Evidence("measured", "the layers that two training steps make were noted"),
)
DEFECTS = (LAYER_IN_FORWARD,)
LIGHT = True


def layers_in_forward(subject: Subject) -> Iterator[Finding | str]:
    """Runs two training steps: a layer with weights that the second one uses, and not the first, was made in vain.

    What the first step makes may be kept, as lazily built layers are; so may what ends up in the module.
    """
    first, second = (subject.record(subject.batches[0]).checked().record for _ in range(2))
    kept = {op.module for op in first.ops} | set(subject.model.modules())
    lost: dict[Place, nn.Module] = {}
    for op in second.ops:
        if op.module is None or op.module in kept or not any(out.requires_grad for out in op.outputs):
            continue
        if any(parameter.requires_grad for parameter in op.module.parameters()):
            for place in blame.makers(op.module)[:1]:
                lost.setdefault(place, op.module)
    for place, module in lost.items():
        kind = type(module).__name__
        weights = sum(parameter.numel() for parameter in module.parameters())
        message = f"{kind} with {weights} weights is made anew in every step"
        yield Finding(LAYER_IN_FORWARD, place, message, f"self.layer = nn.{kind}(…)  # in __init__")
    if not lost:
        yield "no step makes layers of its own"
