"""Calls that overflow in float16 or that autocast refuses."""

import ast
import math
from collections.abc import Iterator

import torch

from torchdoctor import source
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.float16 import MAX_FLOAT16, ZERO_BELOW, EmulatedFloat16, emulate_autocast
from torchdoctor.running.losses import SHAPE_ONLY
from torchdoctor.running.record import Record
from torchdoctor.running.steps import Step
from torchdoctor.running.subject import Subject

AMP_UNSAFE = Defect(
    "amp-unsafe",
    "warning",
    "Training fails or becomes NaN under mixed precision.",
    shown_by=Evidence("experiment", "a training step was run with the rounding of float16"),
)
_SUMS = ("add", "radd", "iadd", "clamp", "clamp_min", "clip")


def amp_unsafe(subject: Subject) -> Iterator[Finding | str]:
    """Runs a step under emulated autocast to float16.

    The step's matrix products and convolutions are rounded to float16, what PyTorch's documentation of autocast lists
    for float32 is computed so, and the rest in the type that comes in. Reported are a loss by binary_cross_entropy,
    which autocast refuses, a value above 65504, a constant that float16 cannot hold and that raises or makes the loss
    NaN, and an epsilon below 2⁻²⁵ under a logarithm. What the user runs in float32, by `.float()` or
    torch.autocast(enabled=False), stays so.
    """
    with torch.no_grad(), subject.not_trained():
        exact = subject.record(subject.batches[0])
    if exact.error is not None or not _is_finite(exact):  # as steps that take gradients themselves
        return
    torch.set_autocast_dtype("cpu", torch.float32)  # convolutions compare types before a dispatch mode sees them
    torch.set_autocast_enabled("cpu", True)
    with torch.no_grad(), subject.not_trained(), emulate_autocast() as states, EmulatedFloat16(states) as half:
        step = subject.record(subject.batches[0]).checked()
    torch.set_autocast_enabled("cpu", False)
    for loss in subject.step().losses:
        if loss.op.name == "binary_cross_entropy" and loss.op.place in half.probabilities:
            message = (
                "binary_cross_entropy of probabilities is refused under autocast: float16 has no sigmoid close to 1"
            )
            fix = "F.binary_cross_entropy_with_logits(logits, target)  # and no sigmoid before it"
            yield Finding(AMP_UNSAFE, loss.op.place, message, fix)
            return
    if half.refused is not None:
        place, name = half.refused
        message = (
            f"{name} gets a number that float16 cannot hold (its largest is {MAX_FLOAT16}): an error under autocast"
        )
        yield Finding(AMP_UNSAFE, place, message, _with_least(place))
    elif half.overflow is not None:
        place, name, size = half.overflow
        values = f"values up to {size:.3g}" if math.isfinite(size) else "infinity"
        message = f"{name} gives {values} where float16 ends at {MAX_FLOAT16}"
        if step.loss is not None and not _is_finite(step):
            message += f"; the loss is {float(step.loss.sum())} under autocast"
        fix = "with torch.autocast(x.device.type, enabled=False):  # and x.float()"
        yield Finding(AMP_UNSAFE, place, message, fix)
    elif half.infinite is not None and not _is_finite(step):  # a mask of −inf alone is fine: the softmax makes it zero
        place, name = half.infinite
        message = f"{name} by a number above {MAX_FLOAT16} gives infinity in float16; the loss is NaN under autocast"
        yield Finding(AMP_UNSAFE, place, message, "torch.finfo(scores.dtype).min  # in place of the number")
    elif (lost := _lost_epsilon(step.record)) is not None:
        place, number = lost
        message = (
            f"the {number:g} under this logarithm is zero in float16, and so is a small sigmoid: log(0) under autocast"
        )
        yield Finding(AMP_UNSAFE, place, message, "F.logsigmoid(logits)  # exact in every type")
    else:
        yield "the step stays finite in float16"


PROBE = Probe(look=amp_unsafe, defects=(AMP_UNSAFE,))


def _with_least(place: Place) -> str:
    """The line's own call of masked_fill with the lowest number of its type, if there is one."""
    for call in source.calls(source.tree(place.file), "masked_fill", "masked_fill_"):
        if call.lineno == place.line and isinstance(call.func, ast.Attribute) and len(call.args) == 2:
            scores = ast.unparse(call.func.value)
            return f"{ast.unparse(call.func)}({ast.unparse(call.args[0])}, torch.finfo({scores}.dtype).min)"
    return "scores.masked_fill(mask, torch.finfo(scores.dtype).min)"


def _is_finite(step: Step) -> bool:
    return step.loss is None or bool(step.loss.isfinite().all())


def _lost_epsilon(record: Record) -> tuple[Place | None, float] | None:
    """The logarithm of p + ε or (1 − p) + ε, where p is a sigmoid in float16, in which ε is zero."""
    for op in record.named("log", "log2", "log10"):
        added = record.producer(op.inputs[0], SHAPE_ONLY)
        if added is None or added.name.strip("_") not in _SUMS or added.inputs[0].dtype != torch.float16:
            continue
        numbers = [value for value in (*added.args, *added.kwargs.values()) if isinstance(value, float)]
        producer = record.producer(added.inputs[0], SHAPE_ONLY | {"rsub", "__rsub__"})
        lost = [number for number in numbers if 0 < number < ZERO_BELOW]
        if lost and producer is not None and producer.name == "sigmoid":
            return op.place, lost[0]
    return None
