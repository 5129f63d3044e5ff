"""NaN and Inf in losses and gradients."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from torchdoctor import source
from torchdoctor.evidence.samples import until_deadline
from torchdoctor.findings import POOR_START, Defect, Evidence, Finding, NotLookedAt
from torchdoctor.probe import Need, Probe
from torchdoctor.running.record import Op, tensors
from torchdoctor.running.steps import Step
from torchdoctor.running.subject import Subject

NON_FINITE = Defect(
    "non-finite",
    "critical",
    "One NaN reaches all weights at the next step.",
    explains=(*POOR_START,),
    shown_by=Evidence("measured", "losses and gradients were checked over several batches, call by call"),
)

_LIMIT_S = 1.0
_MASKS = {"masked_fill", "masked_fill_", "where", "full", "full_like", "new_full", "fill_", "__setitem__", "tensor"}
_MASKS |= {"triu", "zeros"}
_FIXES = {
    "log": "torch.log(x.clamp(min=1e-6))  # or log_softmax, logsigmoid, xlogy",
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
    "pow": "x.clamp(min=1e-6) ** p  # a negative number has no such power, and 0 an infinite gradient",
    "softmax": "scores.masked_fill(mask, torch.finfo(scores.dtype).min)  # a row of −inf alone has no softmax",
    "mean": "x.sum() / max(1, x.numel())  # the mean of nothing is NaN",
}
_BOUNDED = ("log", "log2", "log10", "sqrt", "rsqrt")  # whose argument has a bound that mends them


def non_finite(subject: Subject, huge: float = 1e10) -> Iterator[Finding | str | NotLookedAt]:
    """Runs training steps with backward over the probe batches; the loss and all gradients must be finite.

    If they are not, the step is recorded: the first call that makes NaN or Inf, in the forward or the backward pass,
    of finite values is named. −inf that only masks does no harm and is not looked at by itself.

    Args:
        subject: the training that has just begun.
        huge: magnitude that no initialisation gives to a weight.
    """
    number_of_losses = 0
    for number, batch in until_deadline(enumerate(subject.batches), _LIMIT_S):
        if not _are_finite(tensors(batch)):
            return  # the data's own
        step = subject.backward(batch)
        number_of_losses += step.loss is not None and step.loss.requires_grad
        if what := _non_finite(subject, step):
            op = _first_non_finite_call(step)
            name = op.name.strip("_") if op else ""
            message = f"{what} in batch {number}" + (f"; {name} makes the first one, of finite values" if name else "")
            fix = _FIXES.get(name, "torch.finfo(x.dtype).eps  # keep x away from there")
            place = op.place if op else None
            values = {"log" if name.startswith("log") else "root": name} if name in _BOUNDED else {}
            for owner, weight, size in _uninitialised(subject, huge):
                place = source.assignment(owner, weight) or place
                message += f"; self.{weight} has values up to {size:.1g}, as memory has that nothing initialised"
                fix, values = f"nn.init.normal_(self.{weight}, std=0.02)", {}
            yield Finding(NON_FINITE, place, message, fix, values)
            return
    if number_of_losses:
        yield "losses and gradients are finite"
    else:
        yield NotLookedAt(NON_FINITE, "no step has a loss that goes backwards")


PROBE = Probe(look=non_finite, defects=(NON_FINITE,), needs=(Need.BATCHES, Need.DENSE))


def _are_finite(leaves: list[Tensor]) -> bool:
    return all(bool(leaf.detach().isfinite().all()) for leaf in leaves if leaf.is_floating_point())


def _non_finite(subject: Subject, step: Step) -> str:
    """What is not finite in a step, if anything."""
    if step.loss is not None and not _are_finite([step.loss]):
        return f"the loss is {float(step.loss.detach().flatten()[0])}"
    grads = [weight.grad for weight in subject.model.parameters() if weight.grad is not None]
    bad = [grad for grad in grads if not _are_finite([grad])]
    return f"the gradients of {len(bad)} of {len(grads)} parameters are not finite" if bad else ""


def _uninitialised(subject: Subject, huge: float) -> Iterator[tuple[nn.Module, str, float]]:
    """The first weight with values that no initialisation gives: its module, its name there and the largest of them."""
    for module in subject.model.modules():
        for name, weight in module._parameters.items():
            size = float(weight.detach().abs().max()) if weight is not None and weight.numel() else 0.0
            if weight is not None and weight.requires_grad and not size < huge:
                yield module, name, size
                return


def _first_non_finite_call(step: Step) -> Op | None:
    """The call that makes the first NaN or, unless it is a mask's, the first Inf; or whose backward makes it."""
    ops = [op for op in step.record.ops if op.place is not None and op.outputs]
    for op in ops:
        if _has(torch.isnan, op.outputs) and not _has(torch.isnan, _unmodified_inputs(op)):
            return next(filter(None, (_first_infinite_call(ops, leaf) for leaf in op.inputs)), op)
    if step.loss is not None and _are_finite([step.loss]):
        return _first_non_finite_backward(step)
    unmasked = (op for op in ops if op.name not in _MASKS)
    return next(
        (op for op in unmasked if _has(torch.isinf, op.outputs) and not _has(torch.isinf, _unmodified_inputs(op))), None
    )


def _has(test: Callable[[Tensor], Tensor], leaves: list[Tensor]) -> bool:
    return any(leaf.is_floating_point() and bool(test(leaf.detach()).any()) for leaf in leaves)


def _unmodified_inputs(op: Op) -> list[Tensor]:
    """What a call takes and does not change in place."""
    return [leaf for leaf in op.inputs if not any(leaf is out for out in op.outputs)]


def _first_infinite_call(ops: list[Op], tensor: Tensor) -> Op | None:
    """The call that made the Inf in a tensor, of finite values; nothing if there is none, or it is a mask's."""
    if not _has(torch.isinf, [tensor]):
        return None
    for op in ops:
        if any(out is tensor for out in op.outputs):
            before = [leaf for leaf in _unmodified_inputs(op) if _has(torch.isinf, [leaf])]
            return _first_infinite_call(ops, before[0]) if before else None if op.name in _MASKS else op
    return None


def _first_non_finite_backward(step: Step) -> Op | None:
    """The call whose backward makes the first NaN or Inf, of finite gradients."""
    grads = step.grads
    for op in reversed(step.record.ops):
        after = [grads[id(leaf)] for leaf in op.outputs if id(leaf) in grads]
        before = [grads[id(leaf)] for leaf in _unmodified_inputs(op) if id(leaf) in grads]
        if after and _are_finite(after) and not _are_finite(before) and not _are_finite(_own_grads(op, grads)):
            return op
    return None


def _own_grads(op: Op, grads: dict[int, Tensor]) -> list[Tensor]:
    """What this call alone adds to the gradients of its inputs: they are sums over all calls that take them."""
    outputs = [leaf for leaf in op.outputs if leaf.requires_grad and id(leaf) in grads]
    inputs = [leaf for leaf in op.inputs if leaf.requires_grad]
    output_grads = [grads[id(leaf)] for leaf in outputs]
    own = torch.autograd.grad(outputs, inputs, output_grads, retain_graph=True, allow_unused=True)
    return [grad for grad in own if grad is not None]
