"""Losses and optimizers that lead away from the labels, or do not lead anywhere."""

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from statistics import fmean

import torch
from torch import Tensor

from torchdoctor.evidence import origins, unlearnable
from torchdoctor.evidence.supervised_step import SupervisedLoss, supervised_losses
from torchdoctor.evidence.unlearnable import LOSS_NOT_DECREASING
from torchdoctor.findings import Finding, NotLookedAt, Place
from torchdoctor.probe import Probe
from torchdoctor.running import sandbox
from torchdoctor.running.record import Record, tensors
from torchdoctor.running.steps import Step, is_scalar, last_line
from torchdoctor.running.subject import Subject
from torchdoctor.running.training import train

_UPHILL = 0.1
_STEPS, _FAST = 100, 10.0
_NEGATING = ("neg", "__neg__", "mul", "rsub", "__rsub__")


def loss_direction(subject: Subject, opposed: float = -0.5, far: float = 10.0) -> Iterator[Finding | str | NotLookedAt]:
    """Tests whether minimising the loss with this optimizer moves predictions towards the labels.

    1. The gradient of the loss at the prediction, against that of the plain loss (cross-entropy, squared error): a
       cosine below −0.5 on every batch is a wrong sign (clean programs: above −0.05). So it is, also without labels in
       the batch, if all means of losses of torch's in the step are to rise. Both signs turn if the optimizer's first
       step goes along the gradient, by `maximize=True` or by its own code. Where nothing tells what such a step is to
       raise, 100 steps at ten times the rate do: a loss grows ten times as far as it falls under the opposite rates.
    2. The gradients of all parameters are zero on every batch: a constant loss. Or the target is noise drawn in the
       step, which the prediction was not made of: it can only learn the mean. Or the target is the batch's labels in
       another order, and no call that reorders was on the way to the prediction, as it is in MixUp.

    Args:
        subject: the training that has just begun.
        opposed: cosine of the two gradients below which a sign is wrong.
        far: times that a loss rises farther than it falls at the opposite rates.
    """
    if len(subject.trainer.optimizers) != 1 or not subject.batches:
        return
    step = cache(lambda number: subject.backward(subject.batches[number]))
    finding = (
        unlearnable.constant_loss(subject, step)
        or unlearnable.random_target(step)
        or unlearnable.reordered_labels(subject, step)
    )
    if finding is None:
        uphill = _uphill(subject, step)
        finding = _opposed_gradients(subject, step, uphill, opposed) or _rising_terms(subject, step, uphill)
        if finding is None and uphill and _runs_away(subject, far):
            finding = _increases(subject, "grows without end there, and settles the other way")
    weights = {id(weight) for weight in subject.model.parameters()}
    if finding is not None:
        yield finding
    elif weights.isdisjoint(step(0).grads):
        yield NotLookedAt(LOSS_NOT_DECREASING, "the first step gives no weight a gradient")
    else:
        yield "the loss leads towards the labels, as far as the step has such"


PROBE = Probe(look=loss_direction, defects=(LOSS_NOT_DECREASING,))


def _uphill(subject: Subject, step: Callable[[int], Step]) -> bool:
    """Whether the optimizer goes along the gradient, and not against it: in its first step, or as it says of itself."""
    if not subject.model.automatic_optimization:
        return all(group.get("maximize") for group in subject.trainer.optimizers[0].param_groups)
    grads = step(0).grads
    weights = [weight for weight in subject.model.parameters() if id(weight) in grads]

    def cosine() -> float:
        before = [weight.detach().clone() for weight in weights]
        train(subject, 1, 2.0)
        moves = [(new.detach() - old).flatten() for new, old in zip(weights, before, strict=True)]
        return _cosine(torch.cat(moves), torch.cat([grads[id(weight)].flatten() for weight in weights]))

    return bool(weights) and sandbox.call(cosine, 30.0) > _UPHILL


def _cosine(one: Tensor, other: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(one.flatten().double(), other.flatten().double(), dim=0))


def _increases(subject: Subject, which: str) -> Finding:
    message = f"the optimizer goes up the gradient of the loss, which {which}"
    fix = "# leave out maximize=True, or return -loss"
    return Finding(LOSS_NOT_DECREASING, origins.optimizer(subject)[0], message, fix, {"variant": "maximize"})


def _runs_away(subject: Subject, far: float) -> bool:
    """Whether the loss rises far more in a short fast training than it falls in one with the opposite rates."""

    def moved(scale: float) -> float:
        losses = [loss for loss in train(subject, _STEPS, 2.0, scale) if loss is not None]
        if not all(map(math.isfinite, losses)):
            return math.inf
        return fmean(losses[-5:]) - losses[0] if losses else 0.0

    up, down = (sandbox.call(partial(moved, scale), 10.0) for scale in (_FAST, -_FAST))
    return down < 0 and up > far * -down


def _opposed_gradients(subject: Subject, step: Callable[[int], Step], uphill: bool, opposed: float) -> Finding | None:
    """A finding if the loss is opposed to every label on every batch; with an optimizer that goes up, if it is not."""
    seen: list[tuple[float, SupervisedLoss]] = []
    for number in range(len(subject.batches[:3])):
        seen = _cosines(step(number))
        if not seen or not all((-cosine if uphill else cosine) < opposed for cosine, _ in seen):
            return None
    cosine, last_loss = seen[-1]
    plain = {"classes": "cross-entropy", "binary": "binary cross-entropy"}.get(last_loss.kind, "the squared error")
    if uphill:
        return _increases(subject, f"at the prediction has cosine {cosine:.2f} with that of {plain}")
    message = "the loss leads away from the labels: "
    message += f"its gradient at the prediction has cosine {cosine:.2f} with that of {plain}"
    last = step(len(subject.batches[:3]) - 1)
    by_hand = not any(loss.op is last_loss.op for loss in last.losses)
    place = last_line(last.record) if by_hand else _sign(last.record, "sub", "__sub__") or last_loss.op.place
    return Finding(LOSS_NOT_DECREASING, place, message, "return -loss  # the other sign", {"variant": "sign"})


def _cosines(step: Step) -> list[tuple[float, SupervisedLoss]]:
    """For each prediction of a step, the cosine of the loss's gradient there with that of the plain loss."""
    losses = [each for each in supervised_losses(step) if step.loss is not None and id(each.prediction) in step.grads]
    if _may_be_weighed(step):
        losses = [each for each in losses if any(loss.op is each.op for loss in step.losses)]
    seen = []
    for each in losses:
        value = each.prediction.detach().clone().requires_grad_()
        with torch.enable_grad():
            (plain,) = torch.autograd.grad(each.standard(value).sum(), value)
        seen.append((_cosine(plain, step.grads[id(each.prediction)]), each))
    return seen


def _may_be_weighed(step: Step) -> bool:
    """Whether a batch is more than inputs and labels: weights of samples, as advantages, may be negative."""
    return len([leaf for leaf in tensors(step.batch) if leaf.dim()]) > 2


def _rising_terms(subject: Subject, step: Callable[[int], Step], uphill: bool) -> Finding | None:
    """A finding if all that the step's loss is made of and should fall rises as it falls, on every batch.

    These are losses of torch's, their means alone where the batch may hold weights of samples, and negative
    log-likelihoods of what the batch holds by distributions of torch's. With an optimizer that goes up: if they rise as
    it rises.
    """
    for number in range(len(subject.batches[:3])):
        now = step(number)
        weighed = _may_be_weighed(now)
        parts = [(loss.op, 1) for loss in now.losses if is_scalar(loss.op.out) or not weighed]
        likelihoods = [out for value, out in now.likelihoods if not weighed and _is_given(subject, now, value)]
        parts += [(maker, -1) for out in likelihoods if (maker := now.record.producer(out)) is not None]
        slopes = [sign * now.grads[id(op.out)] for op, sign in parts if id(op.out) in now.grads]
        if not slopes or not all(bool((slope > 0 if uphill else slope < 0).all()) for slope in slopes):
            return None
    op, sign = parts[-1]
    name = op.name if sign > 0 else "the negative log-likelihood"
    if uphill:
        return _increases(subject, f"rises with {name}")
    place = _sign(now.record) or (op.place if sign > 0 else last_line(now.record))
    message, fix = f"the loss falls as {name} rises", "return loss  # the other sign"
    return Finding(LOSS_NOT_DECREASING, place, message, fix, {"variant": "sign"})


def _is_given(subject: Subject, step: Step, value: Tensor) -> bool:
    """Whether a value is computed from the batch, and without any weight: a sample of the model's is not."""
    weights = {id(weight) for weight in subject.model.parameters()}
    return step.is_from_data(value) and weights.isdisjoint(step.record.ancestors(value))


def _sign(record: Record, *more: str) -> Place | None:
    """The line of the last call that may negate the loss."""
    negated = [op.place for op in record.named(*_NEGATING, *more) if is_scalar(op.out)]
    return negated[-1] if negated else None
