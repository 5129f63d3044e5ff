"""What overflows in float16, or what autocast refuses."""

from collections.abc import Iterator
from typing import Any

import torch

from playbook.doctor.findings import Defect, Evidence, Finding
from playbook.doctor.half import LARGEST, Half, autocast_on_cpu
from playbook.doctor.record import Record
from playbook.doctor.subject import Subject

AMP_UNSAFE = Defect(
    "amp-unsafe",
    "warning",
    "Training fails or becomes NaN under mixed precision.",
    shown_by=Evidence("experiment", "a training step was run with the rounding of float16"),
)
DEFECTS = (AMP_UNSAFE,)


def amp_unsafe(subject: Subject) -> Iterator[Finding | str]:
    """Looks for binary_cross_entropy, which autocast refuses, and runs a step as autocast to float16 would.

    The step's matrix products and convolutions are rounded to float16, what PyTorch's documentation of autocast lists
    for float32 is computed so, and the rest in the type that comes in. A value above 65504 that makes the loss Inf or
    NaN, a constant that float16 cannot hold, and an epsilon below 2⁻²⁵ under a logarithm are reported. What the user
    runs in float32, by `.float()` or torch.autocast(enabled=False), stays so.
    """
    batch = subject.batches[0]
    record, guarded = _under_autocast(subject, batch)
    for op in record.named("binary_cross_entropy"):
        if op.inputs and op.inputs[0].requires_grad and not guarded.get(id(op), False):
            message = (
                "binary_cross_entropy of probabilities is refused under autocast: float16 has no sigmoid close to 1"
            )
            fix = "F.binary_cross_entropy_with_logits(logits, target)  # and no sigmoid before it"
            yield Finding(AMP_UNSAFE, op.place, message, fix)
            return
    if (found := _in_half(subject, batch)) is not None:
        yield found
        return
    yield "the step stays finite in float16"


def _under_autocast(subject: Subject, batch: Any) -> tuple[Record, dict[int, bool]]:
    """A recorded step, and which of its calls the user guards by torch.autocast(enabled=False)."""
    guarded: dict[int, bool] = {}
    with autocast_on_cpu() as states:

        class Guards(Record):
            def __torch_function__(self, *args: Any, **kwargs: Any) -> Any:
                count = len(self.ops)
                out = super().__torch_function__(*args, **kwargs)
                guarded[id(self.ops[count])] = not states[-1]
                return out

        torch.manual_seed(0)
        with Guards() as record:
            subject.train(batch)
    return record, guarded


def _in_half(subject: Subject, batch: Any) -> Finding | None:
    torch.manual_seed(0)
    model = subject.model
    model.manual_backward = lambda *_, **__: None
    try:
        with torch.no_grad():
            exact = subject.train(batch)
    except RuntimeError:  # a step that takes gradients itself
        return None
    if exact is not None and not bool(exact.isfinite().all()):
        return None
    torch.manual_seed(0)
    torch.set_autocast_dtype("cpu", torch.float32)  # convolutions compare types before a dispatch mode sees them
    torch.set_autocast_enabled("cpu", True)
    with torch.no_grad(), autocast_on_cpu() as states, Half(states) as half:
        loss = subject.train(batch)
    if half.refused is not None:
        place, name = half.refused
        message = f"{name} gets a number that float16 cannot hold (its largest is {LARGEST}): an error under autocast"
        return Finding(AMP_UNSAFE, place, message, "scores.masked_fill(mask, torch.finfo(scores.dtype).min)")
    if half.overflow is not None:
        place, name, size = half.overflow
        message = f"{name} gives values up to {size:.3g} where float16 ends at {LARGEST}"
        if loss is not None and not bool(loss.isfinite().all()):
            message += f"; the loss is {float(loss.sum())} under autocast"
        return Finding(
            AMP_UNSAFE, place, message, "with torch.autocast(x.device.type, enabled=False):  # and x.float()"
        )
    if half.lost is not None:
        place, number = half.lost
        message = (
            f"the {number:g} under this logarithm is zero in float16, and so is a small sigmoid: log(0) under autocast"
        )
        return Finding(AMP_UNSAFE, place, message, "F.logsigmoid(logits)  # exact in every type")
    return None
