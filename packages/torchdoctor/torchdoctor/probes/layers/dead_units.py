"""ReLU units that are zero for every input."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn

from torchdoctor.evidence.dependence import module_name
from torchdoctor.evidence.initial_values import initialisation_line
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.record import CONVOLUTIONS, Op, Record
from torchdoctor.running.subject import Subject

DEAD_UNITS = Defect(
    "dead-units",
    "warning",
    "Units that are zero for every input have no gradient and do not come back.",
    explains=("input-independent", "loss-not-decreasing", "vanishing-gradient"),
    shown_by=Evidence("measured", "the outputs of each ReLU were watched over several batches"),
)

_DEVIATIONS = 3
_OFF = 0.02  # a mean bias below −0.02 is no chance
_RELU = ("relu", "relu_", "relu6", "threshold", "threshold_", "clamp_min", "clamp_min_")
_LAST = ("linear", "layer_norm", "rms_norm", "addmm", "matmul", "bilinear")  # units in the last dimension
_SECOND = (*CONVOLUTIONS, "batch_norm", "group_norm", "instance_norm")
_ALIKE = ("add", "radd", "sub", "rsub", "mul", "div", "truediv", "neg", "dropout")  # also of operators, and in place


@dataclass
class _Units:
    """Which units of one ReLU were ever above zero, and which always.

    Args:
        op: one of its calls.
        maker: the call that made what it got.
        alive: by unit.
        always: by unit.
        samples: values of each unit.
    """

    op: Op
    maker: Op
    alive: Tensor
    always: Tensor
    samples: int


def dead_units(subject: Subject, most: float = 0.6, width: int = 16, samples: int = 100) -> Iterator[Finding | str]:
    """Records six training steps and finds the units of each ReLU that are zero for all samples and positions.

    Only ReLUs right after a linear layer, a convolution or a norm count, of 16 units or more, that saw 100 values
    each. Threshold: 60 % are dead; clean programs have up to 36 %. Of units that no input switches, more than half must
    be dead, by three standard deviations. Source: Lu et al. 2019, "Dying ReLU and Initialization".

    Args:
        subject: the training that has just begun.
        most: share of a layer's units that may be dead.
        width: units of a layer, at least.
        samples: values of a unit, at least.
    """
    seen: dict[tuple[Any, ...], _Units] = {}
    for number, step in enumerate(subject.steps(6)):
        for units in _units(step.record):
            weight = units.maker.argument(1, "weight")
            key = (
                id(weight if isinstance(weight, nn.Parameter) else units.maker.module),
                units.op.place,
                len(units.alive),
            )
            known = seen.setdefault(key, units)
            if known is not units:
                known.alive |= units.alive
                known.always &= units.always
                known.samples += units.samples
        if number == 1 and all(_dead_share(units) < 1 - most for units in seen.values()):
            break
    for units in seen.values():
        share = _dead_share(units)
        if share > most and units.samples >= samples and len(units.alive) >= width and not _is_chance(units):
            place, reason, fix, values = _cause(subject, units)
            message = f"{share:.0%} of {len(units.alive)} units are zero for all of {units.samples} values{reason}"
            yield Finding(DEAD_UNITS, place, message, fix, values)
            return
    if seen and all(_dead_share(units) <= most for units in seen.values()):
        yield "most units of every ReLU are above zero for some input"


PROBE = Probe(look=dead_units, defects=(DEAD_UNITS,), is_light=True)


def _units(record: Record) -> Iterator[_Units]:
    """The units of each ReLU of a step, where it gets a layer's values and its layer can tell samples apart."""
    for op in record.ops:
        if not (op.name in _RELU or _clamps_at_zero(op)) or not op.outputs or not op.inputs or not op.grad:
            continue
        out, maker = op.outputs[0].detach(), _maker(record, op)
        if maker is None or out.dim() < 2:
            continue
        layer_input = maker.inputs[0].detach()
        if torch.allclose(layer_input, layer_input[:1].expand_as(layer_input), rtol=1e-4, atol=1e-6):
            continue
        dim = out.dim() - 1 if maker.name in _LAST else 1
        above = (~(out <= 0)).transpose(0, dim).flatten(1).sum(1)  # a NaN is not zero
        samples = out.numel() // out.shape[dim]
        yield _Units(op, maker, above > 0, above == samples, samples)


def _clamps_at_zero(op: Op) -> bool:
    low, high = op.argument(1, "min"), op.argument(2, "max")
    return op.name in ("clamp", "clamp_") and isinstance(low, int | float) and low == 0 and high is None


def _maker(record: Record, op: Op) -> Op | None:
    """The layer whose values a call gets, directly or after arithmetic."""
    makers = list(takewhile(lambda maker: maker is not op, record.makers(op.inputs[0])))  # in place, it is one of them
    if not makers or makers[-1].name in _LAST + _SECOND:
        return makers[-1] if makers else None
    return _maker(record, makers[-1]) if makers[-1].name.strip("_") in _ALIKE and makers[-1].inputs else None


def _dead_share(units: _Units) -> float:
    return 1 - float(units.alive.float().mean())


def _is_chance(units: _Units) -> bool:
    """Whether units that inputs are too small to switch are off about as often as on, as the signs of biases fall."""
    off, on = int((~units.alive).sum()), int(units.always.sum())
    return off < (off + on) / 2 + _DEVIATIONS * (off + on) ** 0.5 / 2


def _cause(subject: Subject, units: _Units) -> tuple[Place | None, str, str, dict[str, str]]:
    """The line, the reason, the fix and its values: the layer's bias, an offset in between, or the layer's weights."""
    maker, module = units.maker, units.maker.module
    name = module_name(subject.model, module) if module is not None else ""
    vectors = [leaf.detach() for leaf in maker.inputs if leaf.requires_grad and leaf.dim() == 1]
    bias = float(vectors[-1].mean()) if vectors else 0.0
    if module is not None and bias < -_OFF and float(vectors[-1].std()) < -bias:
        place = initialisation_line(subject.model, module, "bias")
        reason, fix = f"; the bias of {name} is {bias:.2g} on average", f"nn.init.zeros_(self.{name}.bias)"
        return place, reason, fix, {"variant": "zero bias"}
    is_direct = units.op.name.endswith("_") or any(out is leaf for out in maker.outputs for leaf in units.op.inputs)
    if module is None or not is_direct:
        return units.op.place, "", "# shift or scale what comes in, so that about half is above zero", {}
    fix = f'nn.init.kaiming_normal_(self.{name}.weight, nonlinearity="relu")'
    return initialisation_line(subject.model, module), "", fix, {}
