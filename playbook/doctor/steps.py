"""Training steps with their backward pass, as probes look at them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from playbook.doctor.findings import Place
from playbook.doctor.losses import likelihoods
from playbook.doctor.record import Record
from playbook.doctor.subject import Subject


@dataclass
class Step:
    """A training step on one batch, forwards and backwards.

    Args:
        record: of its calls.
        loss: what it returned, or gave to `manual_backward`.
        grads: the loss's gradient at every tensor of the record, by identity.
        likelihoods: values, and their log-likelihoods by distributions of torch's.
    """

    record: Record
    loss: Tensor | None
    grads: dict[int, Tensor]
    likelihoods: list[tuple[Tensor, Tensor]]


Steps = Callable[[int], Step]  # by the batch's number


def backward(subject: Subject, batch: Any) -> Step:
    """Runs a training step on a batch and the backward pass of its loss."""
    grads: dict[int, Tensor] = {}
    subject.model.zero_grad()  # an optimizer's step inside the training step leaves weights without gradients alone
    given_losses: list[Tensor] = []
    subject.model.manual_backward = lambda loss, *_, **__: given_losses.append(loss)
    with likelihoods() as values:
        record, loss = subject.recorded(batch)
    del subject.model.manual_backward
    if not subject.model.automatic_optimization:
        loss = given_losses[0] if given_losses else None
    if loss is not None and loss.requires_grad:
        leaves = {id(leaf): leaf for op in record.ops for leaf in (*op.inputs, *op.outputs) if leaf.requires_grad}
        hooks = [leaf.register_hook(partial(grads.__setitem__, key)) for key, leaf in leaves.items()]
        loss.sum().backward()
        for hook in hooks:
            hook.remove()
    return Step(record, loss, grads, values)


def is_scalar(out: Any) -> bool:
    """Whether this is a single number with a gradient, as a loss is."""
    return isinstance(out, Tensor) and out.dim() == 0 and out.requires_grad


def last_line(record: Record) -> Place | None:
    """The line of the reduction that makes the loss."""
    scalars = [op for op in record.ops if op.direct and is_scalar(op.out) and op.name not in ("detach", "log")]
    return scalars[-1].place if scalars else None
