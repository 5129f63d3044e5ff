"""ReLU units that are zero whatever comes in."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

import torch
from torch import Tensor, nn

from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.initial import initialisation
from playbook.doctor.record import CONVOLUTIONS, Op, Record
from playbook.doctor.subject import Subject

DEAD_UNITS = Defect(
    "dead-units",
    "warning",
    "Units that are zero for every input have no gradient and do not come back.",
    explains=("input-independent", "loss-not-decreasing", "vanishing-gradient"),
    shown_by=Evidence("measured", "the outputs of each ReLU were watched over several batches"),
)
DEFECTS = (DEAD_UNITS,)
LIGHT = True

_MOST = 0.6
_WIDTH = 16
_SAMPLES = 100
_DEVIATIONS = 3
_RELU = ("relu", "relu_", "relu6", "threshold", "threshold_", "clamp_min", "clamp_min_")
_LAST = ("linear", "layer_norm", "rms_norm", "addmm", "matmul", "bilinear")
_SECOND = (*CONVOLUTIONS, "batch_norm", "group_norm", "instance_norm")
_ALIKE = ("add", "radd", "sub", "rsub", "mul", "div", "truediv", "neg", "dropout")  # also of operators, and in place


@dataclass
class _Units:
    """Which units of one ReLU were ever above zero, and which always."""

    alive: Tensor
    always: Tensor
    samples: int
    op: Op
    maker: Op


def dead_units(subject: Subject) -> Iterator[Finding | str]:
    """Records six training steps: which units of each ReLU are zero for all samples, and at all places of a sample.

    Only ReLUs right after a linear layer, a convolution or a norm count, of 16 units or more, that saw 100 values
    each. Threshold: 60 % are dead; clean programs have up to 36 %. Of units that no input switches, more than half must
    be dead, by three standard deviations. Source: Lu et al. 2019, "Dying ReLU and Initialization".
    """
    seen: dict[tuple[int, Place | None], _Units] = {}
    for number, step in enumerate(subject.steps(6)):
        for op in step.record.ops:
            is_relu = op.name in _RELU or (op.name in ("clamp", "clamp_") and _clamps_at_zero(op))
            if is_relu and op.outputs and op.inputs and op.grad:
                _look(step.record, op, seen)
        if number == 1 and all(float(units.alive.float().mean()) > _MOST for units in seen.values()):
            break
    dead = False
    for units in seen.values():
        share = 1 - float(units.alive.float().mean())
        is_seen = units.samples >= _SAMPLES and len(units.alive) >= _WIDTH
        if share > _MOST and is_seen and not _is_chance(units):
            dead = True
            message = f"{share:.0%} of {len(units.alive)} units are zero for all of {units.samples} values"
            yield Finding(DEAD_UNITS, *_cause(subject, units, message))
            break
    if not dead and seen:
        yield "the units of every ReLU are above zero for some input"


def _is_chance(units: _Units) -> bool:
    """Whether units that inputs are too small to switch are off about as often as on, as the signs of biases fall."""
    off, on = int((~units.alive).sum()), int(units.always.sum())
    return off < (off + on) / 2 + _DEVIATIONS * (off + on) ** 0.5 / 2


def _clamps_at_zero(op: Op) -> bool:
    low, high = op.argument(1, "min"), op.argument(2, "max")
    return low is not None and not isinstance(low, Tensor) and low == 0 and high is None


def _look(record: Record, op: Op, seen: dict[tuple[int, Place | None], _Units]) -> None:
    out = op.outputs[0].detach()
    maker = _maker(record, op)
    if maker is None or out.dim() < 2:
        return
    given = maker.inputs[0].detach()
    if torch.allclose(given, given[:1].expand_as(given), rtol=1e-4, atol=1e-6):  # it cannot tell samples apart
        return
    dim = out.dim() - 1 if maker.name in _LAST else 1
    others = [index for index in range(out.dim()) if index != dim]
    above, samples = (out > 0).sum(others), out.numel() // out.shape[dim]
    alive, always = above > 0, above == samples
    weight = maker.argument(1, "weight") if maker.name in _LAST + _SECOND else None
    key = (id(weight) if isinstance(weight, nn.Parameter) else id(maker.module), op.place)
    if key in seen and len(seen[key].alive) == len(alive):
        seen[key].alive |= alive
        seen[key].always &= always
        seen[key].samples += samples
    elif key not in seen:
        seen[key] = _Units(alive, always, samples, op, maker)


def _maker(record: Record, op: Op) -> Op | None:
    """The layer whose values a ReLU gets, directly or after arithmetic."""
    before = takewhile(lambda item: item is not op, record.makers(op.inputs[0]))  # in place, it is one of them
    maker = next(reversed(list(before)), None)
    for _ in range(4):
        if maker is None or maker.name in _LAST + _SECOND:
            return maker
        if maker.name.strip("_") not in _ALIKE or not maker.inputs:
            return None
        maker = record.producer(maker.inputs[0]) if maker.inputs[0] is not (maker.outputs or [None])[0] else None
    return None


def _cause(subject: Subject, units: _Units, message: str) -> tuple[Place | None, str, str]:
    """The line, the message and the fix: an offset in between, the layer's bias, or its weights."""
    maker, module = units.maker, units.maker.module
    direct = any(out is item for out in maker.outputs for item in units.op.inputs)
    values = [leaf for leaf in maker.inputs if leaf.requires_grad and leaf.dim() == 1]
    bias = values[-1].detach() if values else None
    if module is None or (
        not direct and not units.op.name.endswith("_") and maker.place != units.op.place and bias is None
    ):
        return units.op.place, message, "# shift or scale what comes in, so that about half is above zero"
    name = next((name for name, part in subject.model.named_modules() if part is module), "layer")
    if (
        bias is not None
        and float(bias.mean()) < 0
        and float(bias.abs().mean()) > 0.02
        and float(bias.std() if len(bias) > 1 else 0) < -float(bias.mean())
    ):
        message += f"; the bias of {name} is {float(bias.mean()):.2g} on average"
        return initialisation(subject.model, module, "bias"), message, f"nn.init.zeros_(self.{name}.bias)"
    if not direct and not units.op.name.endswith("_"):
        return units.op.place, message, "# shift or scale what comes in, so that about half is above zero"
    fix = f'nn.init.kaiming_normal_(self.{name}.weight, nonlinearity="relu")'
    return initialisation(subject.model, module), message, fix
