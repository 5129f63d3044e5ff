"""Gradients written by hand that lead the other way than the loss."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from playbook.doctor import source
from playbook.doctor.findings import Finding
from playbook.doctor.graph import nodes
from playbook.doctor.probes.overfit import LOSS_NOT_DECREASING
from playbook.doctor.subject import Subject

DEFECTS = (LOSS_NOT_DECREASING,)
LIGHT = True

_STEP, _OPPOSED = 0.01, -0.5


def gradient_sign(subject: Subject) -> Iterator[Finding | str]:
    """Moves all weights a little along the gradient and back, where an autograd.Function of the user's is in the graph.

    The loss then changes by the squared norm of the gradient, times the distance. A change of less than −0.5 of that is
    a wrong sign. Straight-through estimators and reversed gradients of a part change by another amount, but not by the
    opposite: a reversed part would have to be three times as large as all the rest.
    """
    if not subject.model.automatic_optimization or not subject.batches:
        return
    kinds: dict[str, type] = {}
    ratios = []
    for batch in subject.batches[:3]:
        subject.model.zero_grad()
        loss = _loss(subject, batch)
        kinds |= _written_by_hand(loss) if loss is not None else {}
        if loss is None or not kinds:
            return
        loss.backward()
        ratio = _measured(subject, batch, float(loss))
        if ratio is None:
            return
        ratios.append(ratio)
    name, kind = next(iter(kinds.items()))
    if max(ratios) > _OPPOSED:
        yield f"the loss changes as the gradient of {name} says"
        return
    message = f"along the gradient the loss changes by {max(ratios):.2f} of what the gradient says: "
    message += f"the backward of {name} has the wrong sign"
    place = source.definition(kind.__dict__.get("backward"))
    yield Finding(LOSS_NOT_DECREASING, place, message, "return -grad  # torch.autograd.gradcheck(…) tells")


def _loss(subject: Subject, batch: Any) -> Any:
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    loss = subject.train(batch)
    return loss if loss is not None and loss.dim() == 0 else None


def _written_by_hand(loss: Tensor) -> dict[str, type]:
    """The user's autograd functions that a loss is made with, by name."""
    kinds = [getattr(type(node), "_forward_cls", None) for node in nodes(loss.grad_fn)]
    return {kind.__name__: kind for kind in kinds if kind is not None and source.definition(kind) is not None}


def _measured(subject: Subject, batch: Any, loss: float) -> float | None:
    """The loss' change along its gradient, as a share of what the gradient says; None if it says nothing."""
    weights = [weight for weight in subject.model.parameters() if weight.grad is not None]
    grads = [weight.grad.clone() for weight in weights if weight.grad is not None]
    square = sum(float(grad.double().square().sum()) for grad in grads)
    if not square or not loss:
        return None
    distance = _STEP * abs(loss) / square
    ends = []
    for sign in (1, -2):  # forth, and back beyond the start
        with torch.no_grad():
            for weight, grad in zip(weights, grads, strict=True):
                weight.add_(grad, alpha=sign * distance)
        ends.append(float(_loss(subject, batch)))
    return (ends[0] - ends[1]) / (2 * distance * square)
