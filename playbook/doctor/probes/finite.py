"""NaN and Inf in losses and gradients."""

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from playbook.doctor.findings import POOR_START, Defect, Evidence, Finding
from playbook.doctor.record import Op, tensors
from playbook.doctor.steps import Step
from playbook.doctor.subject import Subject

NON_FINITE = Defect(
    "non-finite",
    "critical",
    "One NaN reaches all weights at the next step.",
    explains=(*POOR_START,),
    shown_by=Evidence("measured", "losses and gradients were checked over several batches, call by call"),
)
DEFECTS = (NON_FINITE,)

_LIMIT_S = 1.0
_MASKS = (
    "masked_fill",
    "masked_fill_",
    "where",
    "full",
    "full_like",
    "new_full",
    "fill_",
    "__setitem__",
    "tensor",
    "triu",
    "zeros",
)
_FIXES = {
    "log": "torch.log(x.clamp(min=1e-6))  # or log_softmax, logsigmoid, xlogy",
    "log_": "torch.log(x.clamp(min=1e-6))",
    "log2": "torch.log2(x.clamp(min=1e-6))",
    "log10": "torch.log10(x.clamp(min=1e-6))",
    "sqrt": "torch.sqrt(x + 1e-8)  # the gradient of sqrt is infinite at 0",
    "rsqrt": "torch.rsqrt(x + 1e-8)",
    "norm": "torch.sqrt(x.square().sum(-1) + 1e-8)  # the gradient of a norm is NaN or infinite at 0",
    "std": "torch.sqrt(x.var(0, unbiased=False) + 1e-8)  # the gradient of std is infinite where nothing varies",
    "div": "a / b.clamp(min=1e-6)",
    "true_divide": "a / b.clamp(min=1e-6)",
    "exp": "torch.exp(x.clamp(max=20))",
    "acos": "torch.acos(x.clamp(-1 + 1e-6, 1 - 1e-6))",
    "pow": "(x + 1e-8) ** p",
    "softmax": "scores.masked_fill(mask, torch.finfo(scores.dtype).min)  # a row of −inf alone has no softmax",
    "mean": "x.sum() / max(1, x.numel())  # the mean of nothing is NaN",
}


def non_finite(subject: Subject) -> Iterator[Finding | str]:
    """Runs training steps with backward over the probe batches; the loss and all gradients must be finite.

    If they are not, the step is recorded: the first call that makes NaN or Inf, in the forward or the backward pass,
    of finite values is named. −inf that only masks does no harm and is not looked at by itself.
    """
    deadline = time.monotonic() + _LIMIT_S
    for number, batch in enumerate(subject.batches):
        if any(leaf.is_floating_point() and not leaf.isfinite().all() for leaf in tensors(batch)):
            return  # the data's own
        step = subject.backward(batch)
        if what := _broken(subject, step):
            found = _origin(step)
            place, name = (found.place, found.name.strip("_")) if found else (None, "")
            message = f"{what} in batch {number}" + (f"; {name} makes the first one, of finite values" if name else "")
            yield Finding(
                NON_FINITE, place, message, _FIXES.get(name, "torch.finfo(x.dtype).eps  # keep x away from there")
            )
            return
        if time.monotonic() > deadline:
            break
    yield "losses and gradients are finite"


def _broken(subject: Subject, step: Step) -> str:
    """What is not finite in a step, if anything."""
    if step.loss is not None and not step.loss.detach().isfinite().all():
        return f"the loss is {float(step.loss.detach().flatten()[0])}"
    grads = [weight.grad for weight in subject.model.parameters() if weight.grad is not None]
    bad = [grad for grad in grads if not grad.isfinite().all()]
    return f"the gradients of {len(bad)} of {len(grads)} parameters are not finite" if bad else ""


def _origin(step: Step) -> Op | None:
    ops = [op for op in step.record.ops if op.place is not None and op.outputs]
    for op in ops:
        if _spoils(op.inputs, op.outputs, torch.isnan):
            infinite = [_maker(ops, leaf) for leaf in op.inputs if leaf.is_floating_point() and leaf.isinf().any()]
            return next((maker for maker in infinite if maker is not None), op)
    if step.loss is None or not step.loss.detach().isfinite().all():
        return next((op for op in ops if op.name not in _MASKS and _spoils(op.inputs, op.outputs, torch.isinf)), None)
    return _backwards(step)


def _maker(ops: list[Op], tensor: Tensor) -> Op | None:
    """The call that made the Inf in a tensor, of finite values; nothing if it is a mask's."""
    for op in ops:
        if any(out is tensor for out in op.outputs):
            before = [
                leaf for leaf in op.inputs if leaf.is_floating_point() and leaf.isinf().any() and leaf is not tensor
            ]
            if before:
                return _maker(ops, before[0])
            return None if op.name in _MASKS else op
    return None


def _spoils(inputs: list[Tensor], outputs: list[Tensor], test: Any) -> bool:
    def any_bad(leaves: list[Tensor]) -> bool:
        return any(leaf.is_floating_point() and bool(test(leaf.detach()).any()) for leaf in leaves)

    return any_bad(outputs) and not any_bad([leaf for leaf in inputs if not any(leaf is out for out in outputs)])


def _backwards(step: Step) -> Op | None:
    """The call whose backward makes the first NaN or Inf, of finite gradients."""
    grads = step.grads
    for op in reversed(step.record.ops):
        after = [grads[id(leaf)] for leaf in op.outputs if id(leaf) in grads]
        before = [
            grads[id(leaf)] for leaf in op.inputs if id(leaf) in grads and not any(leaf is out for out in op.outputs)
        ]
        if not before or not after or not all(grad.isfinite().all() for grad in after):
            continue
        if not all(grad.isfinite().all() for grad in before) and _is_guilty(op, grads):
            return op
    return None


def _is_guilty(op: Op, grads: dict[int, Tensor]) -> bool:
    """Whether this call's own backward makes it: a tensor's gradient is the sum over all calls that take it."""
    outputs = [leaf for leaf in op.outputs if leaf.requires_grad and id(leaf) in grads]
    inputs = [leaf for leaf in op.inputs if leaf.requires_grad]
    given = [grads[id(leaf)] for leaf in outputs]
    own = torch.autograd.grad(outputs, inputs, given, retain_graph=True, allow_unused=True)
    return any(grad is not None and not grad.isfinite().all() for grad in own)
