"""Losses that eight samples cannot be learned by."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from playbook.doctor import sandbox
from playbook.doctor.batches import first
from playbook.doctor.findings import Defect, Evidence, Finding
from playbook.doctor.goals import goals
from playbook.doctor.subject import Subject
from playbook.doctor.training import budget

LOSS_NOT_DECREASING = Defect(
    "loss-not-decreasing",
    "critical",
    "Nothing is learned.",
    long=True,
    shown_by=Evidence("experiment", "the loss was compared with a plain one, or trained on 8 samples"),
)
DEFECTS = (LOSS_NOT_DECREASING,)

_STUCK, _LEARNED = 0.65, 0.4
_SAMPLES, _STEPS, _LR = 8, 150, 3e-3


def overfit(subject: Subject) -> Iterator[Finding | str]:
    """Trains with Adam at 3e-3 on 8 samples, 150 steps, without dropout.

    A finding: the loss stays above 0.65 of the first (clean: below 0.5), and so does the plain loss (cross-entropy,
    squared error) of these labels with it, which falls below 0.4 when it is trained in its place. Without the last part
    nothing is said: then it is the model or the data that sets the limit, or no parameter gets a gradient. Steps with
    manual or several optimizers, or whose loss is random without dropout, are not asked.
    """
    if len(subject.trainer.optimizers) != 1 or not subject.batches or not subject.model.automatic_optimization:
        return
    batch = subject.batches[0]
    part = first(batch, _SAMPLES)
    batch = part if part is not None and subject.takes(part) else batch
    for module in subject.model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
            module.dropout = 0.0
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.sparse = False  # Adam takes dense gradients alone
    values = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        loss = subject.train(batch)
        values.append(float(loss.detach()) if loss is not None and loss.dim() == 0 else 0.0)
    if min(values) <= 0 or abs(values[0] - values[1]) > 1e-4 * values[0]:
        return
    before = sandbox.call(lambda: _plain(subject, batch), 10.0)
    start, last, after = sandbox.call(lambda: (*_learn(subject, batch, plain=False), _plain(subject, batch)), 10.0)
    if not last > _STUCK * start or after < _STUCK * before:  # the labels are learned, and other terms stay
        return
    plain_first, plain_last = sandbox.call(lambda: _learn(subject, batch, plain=True), 10.0)
    if not 0 <= plain_last < _LEARNED * plain_first:
        return
    found = goals(subject.record(batch).checked())
    message = f"8 samples cannot be learned: after {_STEPS} steps of Adam the loss is {last / start:.2f} of the first, "
    message += f"where the plain loss reaches {plain_last / plain_first:.2f}"
    fix = "loss = F.cross_entropy(self(x), y)  # prediction and labels of the same samples"
    yield Finding(LOSS_NOT_DECREASING, found[-1].op.place, message, fix)


def _learn(subject: Subject, batch: Any, plain: bool) -> tuple[float, float]:
    """The first loss and the mean of the last few."""
    weights = [parameter for parameter in subject.model.parameters() if parameter.requires_grad]
    optimizer, values, is_spent = torch.optim.Adam(weights, lr=_LR), list[float](), budget(2.5)
    for _ in range(_STEPS):
        optimizer.zero_grad()
        if plain:
            loss = _plain_loss(subject, batch)
            if loss is None:
                return 0.0, 1.0
        else:
            torch.manual_seed(0)
            loss = subject.train(batch)
        if loss is None:
            return 0.0, 0.0
        loss.backward()
        if not any(weight.grad is not None and bool(weight.grad.any()) for weight in weights):
            return 0.0, 0.0  # a constant, of which another probe tells
        optimizer.step()
        values.append(float(loss.detach()))
        if len(values) > 3 and max(values[-3:]) < (_LEARNED if plain else _STUCK) * values[0]:  # it learns
            return values[0], values[-1]
        if is_spent():
            return values[0], min(values) if plain else (sum(values[-5:]) / 5 if len(values) > 60 else 0.0)
    return values[0], sum(values[-5:]) / 5


def _plain_loss(subject: Subject, batch: Any) -> Tensor | None:
    losses = [goal.plain(goal.prediction).sum() for goal in goals(subject.record(batch).checked())]
    return torch.stack(losses).sum() if losses else None


def _plain(subject: Subject, batch: Any) -> float:
    loss = _plain_loss(subject, batch)
    return 0.0 if loss is None else float(loss.detach())
