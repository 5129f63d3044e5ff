"""Losses and optimizers that lead away from the labels, or nowhere."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from playbook.doctor import sandbox
from playbook.doctor.findings import Finding, Place
from playbook.doctor.goals import Goal, goals
from playbook.doctor.losses import SHAPE_ONLY, likelihoods, losses
from playbook.doctor.probes.overfit import LOSS_NOT_DECREASING
from playbook.doctor.record import Record, tensors
from playbook.doctor.samples import from_data
from playbook.doctor.subject import Subject
from playbook.doctor.training import optimizer_call, train

DEFECTS = (LOSS_NOT_DECREASING,)

_OPPOSED, _UPHILL = -0.5, 0.1
_STEPS, _FAST, _FAR = 100, 10.0, 10.0
_RANDOM = ("randn", "randn_like", "normal", "normal_")  # a mean of zero, so that it is no label with some noise
_NEGATING = ("neg", "__neg__", "mul", "rsub", "__rsub__")
_MIXING = ("__getitem__", "index_select", "roll", "flip", "gather", "sort", "argsort", "take_along_dim")


def loss_direction(subject: Subject) -> Iterator[Finding | str]:
    """Asks whether the loss, and the optimizer on it, lead to the labels.

    1. The gradient of the loss at the prediction, against that of the plain loss (cross-entropy, squared error): a
       cosine below −0.5 on every batch is a wrong sign (clean programs: above −0.05). So it is, also without labels in
       the batch, if all means of losses of torch's in the step are to rise. Both signs turn if the optimizer's first
       step goes along the gradient, by `maximize=True` or by its own code. Where nothing tells what such a step is to
       raise, 100 steps at ten times the rate do: a loss grows ten times as far as it falls under the opposite rates.
    2. The gradients of all parameters are zero on every batch: a constant loss. Or the target is noise drawn in the
       step, which the prediction was not made of: it can only learn the mean. Or the target is the batch's labels in
       another order, and no call that reorders was on the way to the prediction, as it is in MixUp.
    """
    if len(subject.trainer.optimizers) != 1 or not subject.batches:
        return
    step = cache(lambda number: _backward(subject, subject.batches[number]))
    found = _constant(subject, step) or _noise(step) or _reordered(subject, step)
    if found is None:
        uphill = _uphill(subject, step)
        found = _opposed(subject, step, uphill) or _rising(subject, step, uphill)
        if found is None and uphill and _runs_away(subject):
            found = _climbs(subject, "grows without end there, and settles the other way")
    yield found or "the loss leads towards the labels, as far as the step has such"


@dataclass
class _Step:
    """A training step on one batch, forwards and backwards.

    Args:
        record: of its calls.
        loss: what it returned, or gave to `manual_backward`.
        grads: the loss's gradient at every tensor of the record, by identity.
        told: values and their log-likelihoods by distributions of torch's.
    """

    record: Record
    loss: Tensor | None
    grads: dict[int, Tensor]
    told: list[tuple[Tensor, Tensor]]


Steps = Callable[[int], _Step]  # by the batch's number


def _backward(subject: Subject, batch: Any) -> _Step:
    grads: dict[int, Tensor] = {}
    subject.model.zero_grad()  # an optimizer's step inside the training step leaves weights without gradients alone
    kept: list[Tensor] = []
    subject.model.manual_backward = lambda loss, *_, **__: kept.append(loss)
    with likelihoods() as told:
        record, loss = subject.recorded(batch)
    del subject.model.manual_backward
    if not subject.model.automatic_optimization:
        loss = kept[0] if kept else None
    if loss is not None and loss.requires_grad:
        leaves = {id(leaf): leaf for op in record.ops for leaf in (*op.inputs, *op.outputs) if leaf.requires_grad}
        hooks = [leaf.register_hook(partial(grads.__setitem__, key)) for key, leaf in leaves.items()]
        loss.sum().backward()
        for hook in hooks:
            hook.remove()
    return _Step(record, loss, grads, told)


def _constant(subject: Subject, step: Steps) -> Finding | None:
    """A finding if no parameter gets a gradient other than zero, on any batch."""
    now = step(0)
    for number in range(len(subject.batches))[:4]:
        now = step(number)
        if now.loss is None or not now.loss.requires_grad or not now.grads:
            return None
        single = any(item.kind == "classes" and item.num_classes == 1 for item in losses(now.record))
        if not single and not float(now.loss.detach().abs().sum()):
            return None  # nothing left to learn, or a share that begins at zero
        reached = [now.grads[id(p)] for p in subject.model.parameters() if p.requires_grad and id(p) in now.grads]
        if not reached or any(bool(grad.any()) for grad in reached):
            return None
    found = losses(now.record)
    place = found[-1].op.place if found else _last_line(now.record)
    message = "the loss is constant: the gradient of every parameter is exactly zero on every batch"
    return Finding(
        LOSS_NOT_DECREASING,
        place,
        message,
        "# compute the loss of logits that differ: not over a dimension of size 1, not clamped",
    )


def _noise(step: Steps) -> Finding | None:
    """A finding if the target is random numbers that the step draws, and the prediction is made without them."""
    record = step(0).record
    for loss in losses(record):
        if loss.kind != "regression" or loss.prediction.dim() == 0:
            continue
        drawn = record.producer(loss.target, SHAPE_ONLY)
        if drawn is None or drawn.name not in _RANDOM or drawn.out is None:
            continue
        if id(drawn.out) not in record.ancestors(loss.prediction):
            message = f"the target is what {drawn.name} drew in this step, and the prediction is made without it"
            return Finding(
                LOSS_NOT_DECREASING, loss.op.place, message, "# add the same noise to the input that is to be learned"
            )
    return None


def _reordered(subject: Subject, step: Steps) -> Finding | None:
    """A finding if the target of a loss is the labels of the batch in another order than the prediction."""
    place, name = None, ""
    for number, batch in enumerate(subject.batches[:3]):
        record = step(number).record
        labels = [leaf.detach() for leaf in tensors(batch) if leaf.dim() == 1]
        found = [loss for loss in losses(record) if any(_is_shuffled(loss.target, label) for label in labels)]
        mixing = [op for op in record.named(*_MIXING) if op.name != "__getitem__" or _picks(op.argument(1, "index"))]
        mixed = {id(out) for op in mixing for out in op.outputs}
        found = [loss for loss in found if not mixed.isdisjoint(record.ancestors(loss.target))]
        found = [loss for loss in found if mixed.isdisjoint(record.ancestors(loss.prediction))]
        if not found:
            return None
        maker = next((op for op in mixing if id(found[0].target) in {id(out) for out in op.outputs}), found[0].op)
        place, name = maker.place, found[0].op.name
    message = f"{name} compares the predictions with the labels of other samples: they are in another order"
    return Finding(LOSS_NOT_DECREASING, place, message, "# predictions and labels in one order")


def _is_shuffled(target: Tensor, label: Tensor) -> bool:
    if target.shape != label.shape or len(label) < 4 or torch.equal(target.detach().to(label.dtype), label):
        return False
    return torch.equal(target.detach().to(label.dtype).sort().values, label.sort().values)


def _picks(index: Any) -> bool:
    return any(leaf.dim() > 0 for leaf in tensors(index))


def _uphill(subject: Subject, step: Steps) -> bool:
    """Whether the optimizer goes along the gradient, and not against it: in its first step, or as it says of itself."""
    if not subject.model.automatic_optimization:
        return all(group.get("maximize") for group in subject.trainer.optimizers[0].param_groups)

    grads = step(0).grads
    weights = [weight for weight in subject.model.parameters() if id(weight) in grads]
    if not weights:
        return False

    def cosine() -> float:
        before = [weight.detach().clone() for weight in weights]
        train(subject, 1, 2.0)
        moves = [(new.detach() - old).flatten() for new, old in zip(weights, before, strict=True)]
        return _cosine(torch.cat(moves), torch.cat([grads[id(weight)].flatten() for weight in weights]))

    return sandbox.call(cosine, 10.0) > _UPHILL


def _cosine(one: Tensor, other: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(one.flatten().double(), other.flatten().double(), dim=0))


def _opposed(subject: Subject, step: Steps, uphill: bool) -> Finding | None:
    """A finding if the loss is opposed to every label on every batch; with an optimizer that goes up, if it is not."""
    cosine, goal, record = 0.0, None, None
    for number, batch in enumerate(subject.batches[:3]):
        now = step(number)
        record, seen = now.record, _cosines(now, batch)
        if not seen or max(-cosine if uphill else cosine for cosine, _ in seen) >= _OPPOSED:
            return None
        cosine, goal = seen[-1]
    if goal is None or record is None:
        return None
    plain = {"classes": "cross-entropy", "binary": "binary cross-entropy"}.get(goal.kind, "the squared error")
    if uphill:
        return _climbs(subject, f"at the prediction has cosine {cosine:.2f} with that of {plain}")
    message = "the loss leads away from the labels: "
    message += f"its gradient at the prediction has cosine {cosine:.2f} with that of {plain}"
    return Finding(LOSS_NOT_DECREASING, _sign(record, goal), message, "return -loss  # the other sign")


def _runs_away(subject: Subject) -> bool:
    """Whether the loss rises far more in a short fast training than it falls in one with the opposite rates."""

    def moved(scale: float) -> float:
        return sandbox.call(lambda: _moved(train(subject, _STEPS, 2.0, scale)), 10.0)

    up, down = moved(_FAST), moved(-_FAST)
    return down < 0 and up > _FAR * -down


def _moved(losses: list[float | None]) -> float:
    """How far the last losses are from the first; infinity if they are no numbers any more."""
    known = [loss for loss in losses if loss is not None]
    if not all(map(math.isfinite, known)):
        return math.inf
    return fmean(known[-5:]) - known[0] if known else 0.0


def _climbs(subject: Subject, which: str) -> Finding:
    message = f"the optimizer goes up the gradient of the loss, which {which}"
    fix = "# leave out maximize=True, or return -loss"
    return Finding(LOSS_NOT_DECREASING, optimizer_call(subject)[0], message, fix)


def _cosines(step: _Step, batch: Any) -> list[tuple[float, Goal]]:
    """For each prediction of a step, the cosine of the loss's gradient there with that of the plain loss."""
    seen = []
    leaves = [leaf for leaf in tensors(batch) if leaf.dim() > 0]
    for goal in goals(step.record, batch) if step.loss is not None else ():
        by_hand = not any(item.op is goal.op for item in losses(step.record))
        if by_hand and len(leaves) > 2:  # weights of samples, as advantages, may be negative
            continue
        if id(goal.prediction) not in step.grads:
            continue
        value = goal.prediction.detach().clone().requires_grad_()
        with torch.enable_grad():
            (plain,) = torch.autograd.grad(goal.plain(value).sum(), value)
        seen.append((_cosine(plain, step.grads[id(goal.prediction)]), goal))
    return seen


def _rising(subject: Subject, step: Steps, uphill: bool) -> Finding | None:
    """A finding if all that the step's loss is made of and should fall rises as it falls, on every batch.

    These are means of losses of torch's, and negative log-likelihoods of what the batch holds by distributions of
    torch's. With an optimizer that goes up: if they rise as it rises.
    """
    record, op = None, None
    for number, batch in enumerate(subject.batches[:3]):
        now = step(number)
        record, grads = now.record, now.grads
        signs = {id(loss.op.out): (loss.op, 1) for loss in losses(record) if _scalar(loss.op.out)}
        for value, out in now.told if len(tensors(batch)) <= 2 else ():  # advantages, as weights, may be negative
            if (maker := record.producer(out)) is not None and _is_given(subject, record, value, batch):
                signs[id(out)] = (maker, -1)
        known = [sign * grads[key] for key, (_, sign) in signs.items() if key in grads]
        if not known or max(float((-grad if uphill else grad).max()) for grad in known) >= 0:
            return None
        op, sign = list(signs.values())[-1]
        name = op.name if sign > 0 else "the negative log-likelihood"
    if record is None or op is None:
        return None
    if uphill:
        return _climbs(subject, f"rises with {name}")
    negated = [item for item in record.named(*_NEGATING) if _scalar(item.out)]
    place = negated[-1].place if negated else _last_line(record) if sign < 0 else op.place
    return Finding(LOSS_NOT_DECREASING, place, f"the loss falls as {name} rises", "return loss  # the other sign")


def _is_given(subject: Subject, record: Record, value: Tensor, batch: Any) -> bool:
    """Whether a value is computed from the batch, and without any weight: a sample of the model's is not."""
    weights = {id(weight) for weight in subject.model.parameters()}
    return from_data(record, value, batch) and weights.isdisjoint(record.ancestors(value))


def _sign(record: Record, goal: Goal) -> Place | None:
    """The line of the last call that the loss is made of: where its sign is decided."""
    if not any(item.op is goal.op for item in losses(record)):
        return _last_line(record)
    negated = [op for op in record.named(*_NEGATING, "sub", "__sub__") if _scalar(op.out)]
    return negated[-1].place if negated else goal.op.place


def _scalar(out: Any) -> bool:
    return isinstance(out, Tensor) and out.dim() == 0 and out.requires_grad


def _last_line(record: Record) -> Place | None:
    """The line of the reduction that makes the loss."""
    scalars = [op for op in record.ops if op.direct and _scalar(op.out) and op.name not in ("detach", "log")]
    return scalars[-1].place if scalars else None
