"""Lists of layers whose entries are all the same layer."""

import ast
from collections import Counter
from collections.abc import Iterator

from torch import nn

from torchdoctor import source
from torchdoctor.evidence import origins
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.subject import Subject

REPEATED_LAYER = Defect(
    "repeated-layer",
    "warning",
    "These layers always have the same weights: the model can learn less than its depth suggests.",
    shown_by=Evidence("measured", "the entries of the model's containers were compared"),
)


def repeated_layers(subject: Subject) -> Iterator[Finding | str]:
    """Looks for containers that hold a trainable layer several times, since a list that makes it is multiplied.

    `[nn.Linear(8, 8)] * n` copies a reference. Layers that are shared on purpose have a name (ALBERT's loop, tied
    heads), and are not reported; nor is a multiplied list that an `if` offers beside another.
    """
    is_found = False
    for name, module in subject.model.named_modules():
        entries = [entry for entry in module._modules.values() if entry is not None]
        for layer, number in Counter(entries).items():
            weights = [weight for weight in layer.parameters() if weight.requires_grad]
            place = _multiplied(layer) if number > 1 and weights else None
            if place is not None:
                is_found = True
                size = sum(weight.numel() for weight in weights)
                message = f"{number} entries of {name or 'the module'} are the same {type(layer).__name__}: "
                message += f"{size} parameters instead of {number * size}"
                yield Finding(REPEATED_LAYER, place, message, "[… for _ in range(n)]  # makes a layer for each entry")
    if not is_found:
        yield "no multiplied list makes several entries of one layer"


PROBE = Probe(look=repeated_layers, defects=(REPEATED_LAYER,), needs=(), is_light=True)


def _multiplied(layer: nn.Module) -> Place | None:
    """Where a layer is made in a list that is multiplied, by its class or by a function that returns it."""
    names = [type(layer).__name__]
    for place in origins.makers(layer):
        for product in source.around(place, ast.BinOp):
            lists = [side for side in (product.left, product.right) if isinstance(side, ast.List | ast.Tuple)]
            makes = any(True for part in lists for _ in source.calls(part, *names))
            if makes and isinstance(product.op, ast.Mult) and not source.around(place, ast.If, ast.IfExp):
                return place
        names.append(getattr(source.function_at(place), "name", ""))
    return None
