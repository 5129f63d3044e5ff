"""Layers that the module holds but does not know of."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from playbook.doctor import source
from playbook.doctor.findings import Defect, Evidence, Finding
from playbook.doctor.subject import Subject

UNREGISTERED_SUBMODULE = Defect(
    "unregistered-submodule",
    "critical",
    "These weights are not trained, not saved and not moved to the device.",
    explains=("crash", "device-unsafe-tensor"),
    shown_by=Evidence("measured", "the attributes of the module were compared with its parameters"),
)
DEFECTS = (UNREGISTERED_SUBMODULE,)
LIGHT = True
_FRAMEWORK = {*vars(nn.Module()), "_hparams_initial"}  # _parameters, _modules, …; the copy by save_hyperparameters
_DEPTH = 4  # of lists in dicts in objects that are looked into


def registration(subject: Subject) -> Iterator[Finding | str]:
    """Compares the trainable tensors that a module's attributes lead to with its parameters().

    A teacher hidden in a list on purpose has no trainable parameters, and is not reported; nor is a module that a step
    does not use, as one of several that the user chooses from.
    """
    used = {id(leaf) for op in subject.attempt().record.ops for leaf in op.inputs}
    known = {id(parameter) for parameter in subject.model.parameters()}
    found = False
    for module in subject.model.modules():
        for name, value in vars(module).items():
            if name in _FRAMEWORK:
                continue
            if source.definition(type(value)) is None and not isinstance(
                value, list | tuple | dict | set | nn.Module | Tensor
            ):
                continue
            hidden = {id(p): p for p in _trainable(value, _DEPTH) if id(p) not in known}
            if used.isdisjoint(hidden) or isinstance(
                value, nn.Module
            ):  # a module among plain attributes was put there on purpose
                continue
            found = True
            kind = type(value).__name__
            message = (
                f"{type(module).__name__}.{name}: {len(hidden)} trainable tensors in a {kind} are not in parameters()"
            )
            container = {"list": "nn.ModuleList", "tuple": "nn.ModuleList", "dict": "nn.ModuleDict"}.get(kind)
            fix = f"self.{name} = {container}(…)" if container else f"self.{name} = nn.Parameter(…)"
            yield Finding(UNREGISTERED_SUBMODULE, source.assignment(module, name), message, fix)
    if not found:
        yield "every trainable tensor is registered"


def _trainable(value: Any, depth: int) -> Iterator[Tensor]:
    if isinstance(value, nn.Module):
        yield from (p for p in value.parameters() if p.requires_grad)
    elif isinstance(value, Tensor):
        if value.requires_grad and value.is_leaf:
            yield value
    elif depth > 0:
        if isinstance(value, dict):
            items: Any = value.values()
        elif isinstance(value, list | tuple | set):
            items = value
        else:
            items = (
                vars(value).values()
                if source.definition(type(value)) is not None and hasattr(value, "__dict__")
                else ()
            )
        for item in list(items):
            yield from _trainable(item, depth - 1)
