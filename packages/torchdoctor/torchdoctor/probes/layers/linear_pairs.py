"""Consecutive linear layers without an activation between them."""

from collections.abc import Iterator

from torch import Tensor, nn

from torchdoctor.evidence import origins
from torchdoctor.evidence.dependence import module_name
from torchdoctor.findings import Defect, Finding
from torchdoctor.probe import Probe
from torchdoctor.running.losses import SHAPE_ONLY
from torchdoctor.running.record import CONVOLUTIONS, Op, Record
from torchdoctor.running.subject import Subject

MISSING_ACTIVATION = Defect(
    "missing-activation",
    "advice",
    "The two compute what one layer could: more weights and time, and no more functions.",
    section="Code quality",
)
_THROUGH = (SHAPE_ONLY | {"dropout", "dropout2d"}) - {"cat", "stack"}
_FIX = "x = F.relu(x)  # between the two; or one layer in their place"


def linear_pairs(subject: Subject) -> Iterator[Finding | str]:
    """Records a training step and looks what stands before each linear layer or convolution.

    Reported is one of the same kind whose result goes nowhere else. Two that pass a narrower width are a factorised
    layer, as is a convolution of single channels before one that mixes them, and have fewer weights on purpose.
    """
    record = subject.step().record
    layers = [op for op in record.named("linear", *CONVOLUTIONS) if _weight(op) is not None]
    pairs = [(first, op) for op in layers if (first := _before(record, op)) is not None]
    seen = set()
    for first, second in pairs:
        place = origins.called_layer_line(subject.model, second)
        if place in seen:
            continue
        seen.add(place)
        names = [module_name(subject.model, op.module) for op in (first, second) if op.module is not None]
        message = f"{' and '.join(names)} follow each other, and no activation stands between them"
        yield Finding(MISSING_ACTIVATION, place, message, _FIX)
    if layers and not pairs:
        yield "activations stand between linear layers"


PROBE = Probe(look=linear_pairs, defects=(MISSING_ACTIVATION,), is_light=True)


def _weight(op: Op) -> Tensor | None:
    weights = [leaf for leaf in op.inputs[1:2] if isinstance(leaf, nn.Parameter) and leaf.requires_grad]
    return weights[0] if weights and op.argument(6, "groups", 1) == 1 else None


def _before(record: Record, op: Op) -> Op | None:
    """The layer of the same kind whose result this one alone takes, if together they are no factorised layer."""
    tensor = op.inputs[0]
    while True:
        takers = [taker for taker in record.takers(tensor) if taker.outputs and not taker.takes_shape_alone]
        maker = record.producer(tensor)
        if maker is None or len(takers) > 1 or not maker.inputs:
            return None
        if maker.name not in _THROUGH:
            break
        tensor = maker.inputs[0]
    first, second = _weight(maker), _weight(op)
    if maker.name != op.name or first is None or second is None or first is second or not tensor.requires_grad:
        return None
    width = len(first)
    is_factorised = width < min(first.shape[1], len(second)) or width != second.shape[1]
    return None if is_factorised else maker
