"""Layers that are constructed anew in every step."""

from collections.abc import Iterator

from torch import nn

from torchdoctor import source
from torchdoctor.evidence import origins
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.subject import Subject

LAYER_IN_FORWARD = Defect(
    "layer-in-forward",
    "critical",
    "Its weights are random in every call, and are neither trained nor saved.",
    explains=("eval-nondeterminism",),
    shown_by=Evidence("measured", "the layers that two training steps make were noted"),
)


def layers_in_forward(subject: Subject) -> Iterator[Finding | str]:
    """Runs two training steps: a layer with weights that the second one uses, and not the first, was made in vain.

    What the first step makes may be kept, as lazily built layers are; so may what ends up in the module.
    """
    first, second = (subject.record(subject.batches[0]).checked().record for _ in range(2))
    lasting_modules = {op.module for op in first.ops} | set(subject.model.modules())
    lost: dict[Place, list[nn.Module]] = {}
    for op in second.ops:
        if op.module is None or op.module in lasting_modules or not any(out.requires_grad for out in op.outputs):
            continue
        if any(parameter.requires_grad for parameter in op.module.parameters()):
            places = origins.makers(op.module)
            outer = [place for place in places if getattr(source.function_at(place), "name", "") != "__init__"]
            for place in (outer or places)[:1]:  # where a layer is made, and not a part of it
                lost.setdefault(place, []).append(op.module)
    for place, modules in lost.items():
        new_layers = list(dict.fromkeys(modules))
        kind = type(new_layers[0]).__name__ if len(new_layers) == 1 else "a layer"
        weights = sum(parameter.numel() for module in new_layers for parameter in module.parameters())
        message = f"{kind} with {weights} weights is made anew in every step"
        yield Finding(LAYER_IN_FORWARD, place, message, "self.layer = …  # what is made here, in __init__")
    if not lost:
        yield "no step makes layers of its own"


PROBE = Probe(look=layers_in_forward, defects=(LAYER_IN_FORWARD,), is_light=True)
