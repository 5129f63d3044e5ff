"""Layers that are not registered with their module."""

from collections.abc import Iterator
from dataclasses import replace

from torchdoctor import source
from torchdoctor.findings import Defect, Evidence, Finding
from torchdoctor.probe import Need, Probe
from torchdoctor.running.subject import Subject
from torchdoctor.running.training import trained_weights
from torchdoctor.running.unregistered import plain_attributes, unregistered_tensors

UNREGISTERED_SUBMODULE = Defect(
    "unregistered-submodule",
    "critical",
    "These weights are not trained, not saved and not moved to the device.",
    explains=("crash", "device-unsafe-tensor", "parameter-not-optimized"),
    shown_by=Evidence("measured", "the attributes of the module were compared with its parameters"),
)
_CONTAINERS = {"list": "ModuleList", "tuple": "ModuleList", "dict": "ModuleDict"}


def registration(subject: Subject) -> Iterator[Finding | str]:
    """Compares the trainable tensors that a module's attributes lead to with its parameters().

    A teacher hidden in a list on purpose has no trainable parameters, and is not reported; nor is a module that a step
    does not use, as one of several that the user chooses from.
    """
    used = {id(leaf) for op in subject.attempt().record.ops for leaf in op.inputs}
    known = {id(parameter) for parameter in subject.model.parameters()}
    optimized = trained_weights(subject)
    is_complete = True
    for module in subject.model.modules():
        for name, value in plain_attributes(module):
            leaves = {id(leaf): leaf for leaf in unregistered_tensors(value)}
            hidden = [key for key, leaf in leaves.items() if leaf.requires_grad and leaf.is_leaf and key not in known]
            is_complete &= not hidden
            if used.isdisjoint(hidden):
                continue
            kind = type(value).__name__
            message = (
                f"{type(module).__name__}.{name}: {len(hidden)} trainable tensors in a {kind} are not in parameters()"
            )
            container = _CONTAINERS.get(kind, "Parameter")
            defect, fix, values = UNREGISTERED_SUBMODULE, f"self.{name} = nn.{container}(…)", {"container": container}
            if optimized.issuperset(hidden):
                defect = replace(defect, impact="These weights are trained, but not saved and not moved to the device.")
                message += "; the optimizer gets them apart"
                fix, values = f"{fix}  # and no longer give them to the optimizer apart", {}
            yield Finding(defect, source.assignment(module, name), message, fix, values)
    if is_complete:
        yield "every trainable tensor is registered"


PROBE = Probe(
    look=registration, defects=(UNREGISTERED_SUBMODULE,), needs=(Need.WEIGHTS,), is_light=True, of_holders=True
)
