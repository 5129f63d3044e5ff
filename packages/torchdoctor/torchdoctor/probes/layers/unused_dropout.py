"""Dropout that is made and never applied."""

import ast
from collections.abc import Iterator

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from torchdoctor import source
from torchdoctor.evidence import origins
from torchdoctor.findings import Defect, Finding
from torchdoctor.probe import Probe
from torchdoctor.running.subject import Subject

UNUSED_DROPOUT = Defect(
    "unused-dropout",
    "warning",
    "Nothing is dropped there: the network is less regularised than its options say.",
    section="Code quality",
)


def unused_dropout(subject: Subject) -> Iterator[Finding | str]:
    """Records a training step, in which dropout should take part where the module that holds it does.

    Dropout that any line reads is not reported: other branches may apply it, or take its rate. Recurrent layers of
    torch's drop what goes from one of them to the next, so that a single one drops nothing.
    """
    called = {op.module for op in subject.attempt().checked().record.ops}
    is_complete = any(isinstance(part, _DropoutNd) or getattr(part, "dropout", 0) for part in subject.model.modules())
    for owner in subject.model.modules():
        layers = [(name, layer) for name, layer in owner.named_children() if isinstance(layer, _DropoutNd) and layer.p]
        if not layers or called.isdisjoint(owner.modules()):
            continue
        for name, layer in layers:
            place = source.assignment(owner, name)
            if layer in called or place is None or _may_be_read(owner, name, subject.model):
                continue
            is_complete = False
            message = f"{type(owner).__name__}.{name}: dropout of {layer.p:g} that nothing calls"
            yield Finding(UNUSED_DROPOUT, place, message, f"x = self.{name}(x)  # in forward, or delete it here")
    for name, part in subject.model.named_modules():
        if isinstance(part, nn.RNNBase) and part.num_layers == 1 and part.dropout and part in called:
            is_complete = False
            message = f"{name}: dropout of {part.dropout:g} between layers, of which there is one"
            fix = f"# leave it out here; nn.Dropout({part.dropout:g}) would drop from the results"
            yield Finding(UNUSED_DROPOUT, origins.layer(subject.model, part), message, fix)
    if is_complete:
        yield "dropout is applied where it is made"


PROBE = Probe(look=unused_dropout, defects=(UNUSED_DROPOUT,), is_light=True)


def _may_be_read(owner: nn.Module, name: str, model: nn.Module) -> bool:
    """Whether a line may read an attribute: of its owner in the owner's own classes, of another object in any file."""
    own = [node for cls in source.classes_of(owner) for _, node in source.statements(cls)]
    others = [node for file in source.files_of(model) for node in ast.walk(source.tree(file))]
    is_by_name = any(isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" for node in own)
    return (
        is_by_name or any(_reads(own, name)) or any(ast.unparse(node.value) != "self" for node in _reads(others, name))
    )


def _reads(nodes: list[ast.AST], name: str) -> list[ast.Attribute]:
    reads = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)]
    return [node for node in reads if node.attr == name]
