"""Adam with weight decay, which is not the decay that AdamW means."""

from collections.abc import Iterator

import torch

from torchdoctor import source
from torchdoctor.evidence import origins
from torchdoctor.findings import Defect, Evidence, Finding
from torchdoctor.probe import Probe
from torchdoctor.running.subject import Subject

ADAM_L2 = Defect(
    "adam-l2",
    "advice",
    "Adam divides the L2 term by the gradients' size, so that weights decay unevenly.",
    section="Code quality",
    shown_by=Evidence("source", "the options of the optimizer were read"),
)


def adam_l2(subject: Subject) -> Iterator[Finding | str]:
    """Reads the optimizers: Adam adds the decay to the gradient, then divides both by the gradients' size.

    Source: Loshchilov and Hutter 2019, "Decoupled weight decay regularization".
    """
    for optimizer in subject.trainer.optimizers:
        decays = [group["weight_decay"] for group in optimizer.param_groups if group.get("weight_decay")]
        decoupled = any(group.get("decoupled_weight_decay") for group in optimizer.param_groups)
        if type(optimizer) not in (torch.optim.Adam, torch.optim.NAdam, torch.optim.RAdam) or decoupled or not decays:
            continue
        name = type(optimizer).__name__
        message = f"{name} with weight_decay={decays[0]:g}, which is added to the gradients and scaled by their size"
        fix = f"torch.optim.AdamW(…, weight_decay={decays[0]:g})"
        if name != "Adam":
            fix = f"torch.optim.{name}(…, weight_decay={decays[0]:g}, decoupled_weight_decay=True)"
        place = origins.maker(optimizer) or source.definition(type(subject.model).configure_optimizers)
        yield Finding(ADAM_L2, place, message, fix)


PROBE = Probe(look=adam_l2, defects=(ADAM_L2,), needs=(), is_light=True)
