"""Batch norms that several layers share."""

from collections.abc import Iterator

from torch import Tensor, nn

from torchdoctor.evidence.dependence import module_name
from torchdoctor.findings import Defect, Finding
from torchdoctor.probe import Probe
from torchdoctor.running.record import Op, Record
from torchdoctor.running.subject import Subject

SHARED_NORM = Defect(
    "shared-norm",
    "warning",
    "In evaluation, each of these layers is normalised with a mean and a variance that belong to none of them.",
)
_NEAR = 6  # calls between a layer and its norm, at most


def shared_norms(subject: Subject) -> Iterator[Finding | str]:
    """Records a training step and looks which weights stand before each call of a batch norm.

    One that follows different weights averages over all of them (Ioffe and Szegedy 2015 have one for each layer).
    Blocks that are used again as a whole, norms that keep no statistics, and networks that are called several times
    are not reported.
    """
    record = subject.step().record
    before: dict[nn.Module, dict[int, Op]] = {}
    for op in record.named("batch_norm"):
        weight = _weight_before(record, op)
        norm = op.module
        if weight is not None and isinstance(norm, nn.modules.batchnorm._BatchNorm) and norm.running_mean is not None:
            before.setdefault(norm, {}).setdefault(id(weight), op)
    shared = {norm: list(ops.values()) for norm, ops in before.items() if len(ops) > 1}
    for norm, ops in shared.items():
        name = module_name(subject.model, norm)
        message = f"{name} follows {len(ops)} layers with weights of their own: its running mean and variance mix them"
        fix = f"nn.{type(norm).__name__}({norm.num_features})  # another one for each of these layers"
        yield Finding(SHARED_NORM, ops[1].place, message, fix)
    if before and not shared:
        yield "every batch norm has one layer"


PROBE = Probe(look=shared_norms, defects=(SHARED_NORM,), is_light=True)


def _weight_before(record: Record, op: Op) -> Tensor | None:
    """The weight of the layer that gives a norm its input, if no other norm stands between."""
    tensor = op.inputs[0]
    for _ in range(_NEAR):
        maker = record.producer(tensor)
        if maker is None or not maker.inputs or maker.name == "batch_norm":
            return None
        weights = [leaf for leaf in maker.inputs if isinstance(leaf, nn.Parameter) and leaf.dim() > 1]
        if weights:
            return weights[0]
        tensor = maker.inputs[0]
    return None
