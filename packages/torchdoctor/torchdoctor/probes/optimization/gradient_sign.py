"""Hand-written gradients with the wrong sign."""

from collections.abc import Iterator
from typing import Any

import torch

from torchdoctor import source
from torchdoctor.evidence.unlearnable import LOSS_NOT_DECREASING
from torchdoctor.findings import Finding
from torchdoctor.probe import Probe
from torchdoctor.running.graph import nodes
from torchdoctor.running.subject import Subject

_STEP = 0.01


def gradient_sign(subject: Subject, opposed: float = -0.5) -> Iterator[Finding | str]:
    """Moves all weights a little along the gradient and back, where an autograd.Function of the user's is in the graph.

    The loss then changes by the squared norm of the gradient, times the distance. A change of less than −0.5 of that is
    a wrong sign. Straight-through estimators and reversed gradients of a part change by another amount, but not by the
    opposite: a reversed part would have to be three times as large as all the rest.

    Args:
        subject: the training that has just begun.
        opposed: change of the loss, as a share of what the gradient says.
    """
    loss = subject.step().loss
    if not subject.model.automatic_optimization or loss is None or loss.dim():
        return
    kinds = [getattr(type(node), "_forward_cls", None) for node in nodes(loss.grad_fn)]
    by_name = {kind.__name__: kind for kind in kinds if kind is not None and source.definition(kind) is not None}
    ratios = [_measured(subject, batch) for batch in subject.batches[:3]] if by_name else []
    if not ratios or not all(ratios):
        return
    name, kind = next(iter(by_name.items()))
    if max(ratios) > opposed:
        yield f"the loss changes as the gradient of {name} says"
        return
    message = f"along the gradient the loss changes by {max(ratios):.2f} of what the gradient says: "
    message += f"the backward of {name} has the wrong sign"
    place = source.definition(kind.__dict__.get("backward"))
    yield Finding(LOSS_NOT_DECREASING, place, message, "return -grad  # torch.autograd.gradcheck(…) tells")


PROBE = Probe(look=gradient_sign, defects=(LOSS_NOT_DECREASING,), is_light=True)


def _measured(subject: Subject, batch: Any) -> float:
    """The loss' change along its gradient, as a share of what the gradient says; 0 if it says nothing."""
    loss = subject.backward(batch).loss
    weights = [weight for weight in subject.model.parameters() if weight.grad is not None]
    grads = [weight.grad.clone() for weight in weights if weight.grad is not None]
    square = sum(float(grad.double().square().sum()) for grad in grads)
    if loss is None or not float(loss) or not square:
        return 0.0
    distance, ends = _STEP * abs(float(loss)) / square, []
    for sign in (1, -2):  # forth, and back beyond the start
        with torch.no_grad():
            for weight, grad in zip(weights, grads, strict=True):
                weight.add_(grad, alpha=sign * distance)
        end = subject.record(batch).checked().loss
        ends.append(0.0 if end is None else float(end))
    return (ends[0] - ends[1]) / (2 * distance * square)
