"""Losses that do not fall even on eight samples."""

from collections.abc import Callable, Iterator
from statistics import fmean

import torch
from torch import Tensor

from torchdoctor.evidence.supervised_step import supervised_losses
from torchdoctor.evidence.unlearnable import LOSS_NOT_DECREASING
from torchdoctor.findings import Finding
from torchdoctor.probe import Need, Probe
from torchdoctor.running import sandbox
from torchdoctor.running.batches import first_samples
from torchdoctor.running.subject import Subject
from torchdoctor.running.training import leave_out_dropout, time_budget

_ALIKE = 10  # times the plain loss, or a part of it; decibels beside a squared error: 100 times
_SAMPLES, _STEPS, _LR = 8, 150, 3e-3
_ENOUGH = 60  # steps, where time is up before all of them


def overfit(subject: Subject, stuck: float = 0.65, learned: float = 0.4) -> Iterator[Finding | str]:
    """Trains with Adam at 3e-3 on 8 samples, 150 steps, without dropout.

    A finding: the loss stays above 0.65 of the first (clean: below 0.5), and so does the plain loss (cross-entropy,
    squared error) of these labels with it, which falls below 0.4 when it is trained in its place. Without the last part
    nothing is said: then it is the model or the data that sets the limit, or no parameter gets a gradient. Steps with
    manual or several optimizers, or whose loss is random without dropout, are not asked, nor are those whose loss has
    another size than the plain one, which is then not what they are after.

    Args:
        subject: the training that has just begun.
        stuck: share of the first loss that remains.
        learned: share of it that the plain loss falls below.
    """
    if len(subject.trainer.optimizers) != 1 or not subject.batches or not subject.model.automatic_optimization:
        return
    batch, part = subject.batches[0], first_samples(subject.batches[0], _SAMPLES)
    if part is not None and subject.accepts(part):
        batch = part
    leave_out_dropout(subject.model)

    def own() -> Tensor | None:
        torch.manual_seed(0)
        return subject.train(batch)

    def plain() -> Tensor | None:
        losses = [each.standard(each.prediction).sum() for each in supervised_losses(subject.record(batch).checked())]
        return torch.stack(losses).sum() if losses else None

    loss, other = own(), subject.train(batch)  # the second goes on with other random numbers
    if loss is None or loss.dim() or other is None or float(loss) <= 0 or abs(loss - other) > 1e-4 * loss:
        return
    before = sandbox.call(lambda: _number(plain()), 10.0)
    if not float(loss) / _ALIKE < before < float(loss) * _ALIKE:
        return
    losses, after = sandbox.call(lambda: (_learn(subject, own, stuck), _number(plain())), 10.0)
    if len(losses) < _ENOUGH or not fmean(losses[-3:]) > stuck * losses[0]:
        return
    if after < stuck * before:  # the labels are learned, and other terms stay
        return
    plain_losses = sandbox.call(lambda: _learn(subject, plain, learned), 10.0)
    if not plain_losses or not 0 <= fmean(plain_losses[-3:]) < learned * plain_losses[0]:
        return
    share, plain_share = (fmean(values[-3:]) / values[0] for values in (losses, plain_losses))
    message = f"8 samples cannot be learned: after {_STEPS} steps of Adam the loss is {share:.2f} of the first, "
    message += f"where the plain loss reaches {plain_share:.2f}"
    fix = "loss = F.cross_entropy(self(x), y)  # prediction and labels of the same samples"
    place = supervised_losses(subject.record(batch).checked())[-1].op.place
    yield Finding(LOSS_NOT_DECREASING, place, message, fix)


PROBE = Probe(
    look=overfit,
    defects=(LOSS_NOT_DECREASING,),
    needs=(Need.BATCHES, Need.FEWER_SAMPLES, Need.DENSE, Need.WEIGHTS),
    at_start=True,
)


def _learn(subject: Subject, compute: Callable[[], Tensor | None], aim: float) -> list[float]:
    """The losses of a training, until three are below the aim, as a share of the first; none without gradients."""
    weights = [parameter for parameter in subject.model.parameters() if parameter.requires_grad]
    optimizer, values, is_spent = torch.optim.Adam(weights, lr=_LR), list[float](), time_budget(2.5)
    with subject.dense_gradients():  # Adam takes no others
        while len(values) < _STEPS and not is_spent() and not (len(values) > 3 and max(values[-3:]) < aim * values[0]):
            optimizer.zero_grad()
            loss = compute()
            if loss is None:
                return []
            loss.backward()
            if not any(weight.grad is not None and bool(weight.grad.any()) for weight in weights):
                return []  # a constant, of which another probe tells
            optimizer.step()
            values.append(float(loss.detach()))
    return values


def _number(loss: Tensor | None) -> float:
    return 0.0 if loss is None else float(loss.detach())
