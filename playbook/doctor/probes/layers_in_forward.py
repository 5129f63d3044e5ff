"""Layers that a step makes anew."""

import sys
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from playbook.doctor import source
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
    """Runs two training steps: a layer with weights that the second one makes, uses and forgets was made in vain.

    What the first step makes may be kept, as lazily built layers are; so may what ends up in the module.
    """
    made: list[tuple[nn.Module, Place]] = []
    used: dict[int, bool] = {}
    original = nn.Module.__init__

    def init(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        places, _ = source.callers(sys._getframe(1))
        if places:
            made.append((self, places[0]))

    def after(module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            used[id(module)] = output.requires_grad

    subject.train(subject.batches[0])
    hook = nn.modules.module.register_module_forward_hook(after)
    nn.Module.__init__ = init
    try:
        subject.train(subject.batches[0])
    finally:
        nn.Module.__init__ = original
        hook.remove()
    kept = {id(module) for module in subject.model.modules()}
    lost: dict[Place, nn.Module] = {}
    for module, place in made:
        is_learner = any(parameter.requires_grad for parameter in module.parameters())
        if is_learner and used.get(id(module)) and id(module) not in kept:
            lost.setdefault(place, module)
    for place, module in lost.items():
        kind = type(module).__name__
        weights = sum(parameter.numel() for parameter in module.parameters())
        message = f"{kind} with {weights} weights is made anew in every step"
        yield Finding(LAYER_IN_FORWARD, place, message, f"self.layer = nn.{kind}(…)  # in __init__")
    if not lost:
        yield "no step makes layers of its own"
