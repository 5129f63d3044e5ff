"""Finds networks that stay on the CPU while their batches are moved to an accelerator."""

import ast
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from torchdoctor import source
from torchdoctor.evidence import origins
from torchdoctor.findings import Evidence, Finding
from torchdoctor.probes.execution.device import DEVICE_UNSAFE_TENSOR
from torchdoctor.running.pretended_device import checks_for_cuda
from torchdoctor.running.record import Op
from torchdoctor.running.subject import Subject
from torchdoctor.scripts import notes
from torchdoctor.scripts.module import Script

_DEFECT = replace(
    DEVICE_UNSAFE_TENSOR, shown_by=Evidence("measured", "the calls that send networks and tensors away were noted")
)
_OTHERWISE = ("prepare", "setup", "setup_module", "initialize", "set_default_device", "set_default_tensor_type")


def models_left_on_cpu(subject: Subject, model: Script) -> Iterator[Finding]:
    """Finds networks that were never moved to a device, although the step moves their inputs.

    Args:
        subject: at the beginning.
        model: of the script.
    """
    trees = list(map(source.tree, model.files))
    if not any(map(checks_for_cuda, model.files)) or any(map(_may_send, trees)):
        return
    step = subject.attempt()
    moves = [op for op in step.record.named("to", "cuda") if _sends(op) and step.is_from_data(op.inputs[0])]
    used = {id(leaf) for op in step.record.ops for leaf in op.inputs}
    for name, part in model.named_children() if moves else ():
        place = origins.maker(part)
        weights = list(nn.Module.parameters(part))
        if place is None or _is_made_there(part) or notes.is_sent(part) or used.isdisjoint(map(id, weights)):
            continue
        sent = next(filter(None, (op.place for op in moves)), place)
        line = sent.seen_from(place)
        message = f"nothing sends {name} to a device, and {line} sends its batches: they do not meet on an accelerator"
        yield Finding(_DEFECT, place, message, f"{name} = {name}.to(device)")


def _may_send(tree: ast.AST) -> bool:
    """Whether a file may also move a network, as in a branch for accelerators only."""
    branches = [node for node in ast.walk(tree) if isinstance(node, ast.If | ast.IfExp) and _tests_device(node.test)]
    inside = any(any(source.calls(branch, "to", "cuda")) for branch in branches)
    around = [item.context_expr for node in ast.walk(tree) if isinstance(node, ast.With) for item in node.items]
    return inside or any(source.calls(tree, *_OTHERWISE)) or any(map(_tests_device, around))


def _tests_device(expression: ast.expr) -> bool:
    text = ast.unparse(expression).lower()
    return any(word in text for word in ("cuda", "gpu", "device"))


def _sends(op: Op) -> bool:
    """Whether a call moves a tensor to a device other than a literal "cpu"."""
    named = [*op.args[1:], op.kwargs.get("device")]
    is_named = op.name == "cuda" or any(isinstance(argument, torch.device | str) for argument in named)
    return op.direct and is_named and op.place is not None and "cpu" not in op.place.code


def _is_made_there(part: nn.Module) -> bool:
    """Whether a layer may be constructed directly on a device."""
    inits = [vars(cls).get("__init__") for cls in source.classes_in(part)]
    options = [node for _, node in source.statements(*inits) if isinstance(node, ast.keyword)]
    places = [place for layer in part.modules() for place in origins.makers(layer)[:1]]
    return any(node.arg == "device" for node in options) or any("device" in place.code for place in places)
