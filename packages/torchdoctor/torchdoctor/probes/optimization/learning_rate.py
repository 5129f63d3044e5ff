"""Learning rates that are too high or too low."""

import ast
import math
from collections.abc import Iterator
from contextlib import suppress
from statistics import fmean, median

import torch

from torchdoctor.code import name_of
from torchdoctor.evidence import origins
from torchdoctor.evidence.supervised_step import supervised_losses
from torchdoctor.findings import Defect, Evidence, Finding, NotLookedAt
from torchdoctor.probe import Need, Probe
from torchdoctor.running import sandbox
from torchdoctor.running.subject import Subject
from torchdoctor.running.training import peak_rates, train

LEARNING_RATE_TOO_HIGH = Defect(
    "learning-rate-too-high",
    "critical",
    "Training diverges.",
    explains=("exploding-gradient",),
    long=True,
    shown_by=Evidence("experiment", "the model was trained for 30 steps at several learning rates, on copies"),
)
LEARNING_RATE_TOO_LOW = Defect(
    "learning-rate-too-low",
    "warning",
    "The weights hardly move.",
    long=True,
    shown_by=Evidence("measured", "the change of each weight was measured over 30 steps"),
)

_QUICK, _LONG, _FEWEST, _RAMP = 30, 100, 20, 5  # steps
_LIMIT_S = 3.0
_FAR, _REACHED_IN = 3.0, 1e3  # first loss over that of the labels' mean; steps
_SLOW, _USUAL, _BOLD = 1e-4, 1e-3, 0.1  # change of a weight a step, as a share of it


def learning_rate(
    subject: Subject, diverged: float = 2.0, still: float = 1e-5, thrown: float = 3.0, patience: float = 1e5
) -> Iterator[Finding | str | NotLookedAt]:
    """Trains for 30 steps at the schedule's peak, with the user's optimizer, clipping and accumulation.

    Too high: the loss is no number, or more than twice the first while a tenth or a hundredth of the rate lowers it by
    a tenth, or not below 0.9 of the first while such a rate halves it. Clean programs reached 1.31 at most, and no
    smaller rate halved their loss. Where a step changes a weight by three times itself, half of what the loss falls to
    is enough.
    Too low: no weight of an optimizer changes by more than 1e-5 of itself in a step, where about 1e-3 is usual
    (Karpathy 2015, "Neural Networks Part 3"; clean programs reached 1e-3, fine-tuning 1e-4), and at the rate that makes
    it 1e-3 the loss falls. Or values start so far from their labels that the mean of these is 100 000 steps away, and a
    rate a hundred times as high gains ten times as much: targets of another scale than the rate.

    Args:
        subject: the training that has just begun.
        diverged: loss, as a share of the first, above which a rate is too high.
        still: change of a weight a step, as a share of it, that is too small.
        thrown: the same that is too large.
        patience: steps to the mean of the labels.
    """
    rates = peak_rates(subject)
    if not any(rates) or not subject.batches:
        return
    quick = _forked_training(subject, _QUICK, 1.0)
    start, level, changes = quick["start"], _final_loss(quick["losses"]), quick["changes"]
    if not start or not all(map(math.isfinite, start)):
        return
    # a loss around zero, or of players against each other, need not fall: it may only stay a number
    falls = len(subject.trainer.optimizers) == 1 and fmean(start) > (max(start) - min(start)) / 2
    base = fmean(start) if falls else None
    reached = level / base if base else 0.0 if math.isfinite(level) else math.nan
    rate, change = max(map(max, rates)), max(changes)
    if (not reached <= 0.8 and not change < _SLOW) or change > thrown:
        text, scale = _too_high(subject, base, reached, change, thrown, diverged)
        if text:
            yield _finding(subject, LEARNING_RATE_TOO_HIGH, f"at lr={rate:g} {text}", rate * scale)
            return
    least = min(filter(None, changes), default=0.0)  # an optimizer may have its turn later
    if 0 < least < _SLOW and _is_too_low(subject, least, base, reached, still):
        number = changes.index(least)
        rate = max(rates[number])
        message = f"at lr={rate:g} no weight changes by more than {least:.1g} of itself in a step; 1e-3 is usual"
        yield _finding(subject, LEARNING_RATE_TOO_LOW, message, rate * _USUAL / least, number)
        return
    steps = _steps_to_mean(subject)
    if steps > patience:
        message = f"at lr={rate:g} predictions would take some {steps:.0e} steps to the mean of the labels alone"
        yield _finding(subject, LEARNING_RATE_TOO_LOW, message, rate * steps / _REACHED_IN)
        return
    if not change:
        yield NotLookedAt(LEARNING_RATE_TOO_LOW, "no step of these changes a weight")
    elif change <= _BOLD:
        yield f"the learning rate moves weights by {change:.1g} of themselves in a step; the loss stays finite"


PROBE = Probe(
    look=learning_rate,
    defects=(LEARNING_RATE_TOO_HIGH, LEARNING_RATE_TOO_LOW),
    needs=(Need.BATCHES, Need.WEIGHTS, Need.STEPS),
    at_start=True,
)


def _too_high(
    subject: Subject, base: float | None, reached: float, change: float, thrown: float, diverged: float
) -> tuple[str, float]:
    """What shows that the rate is too high, and the share of it that is not; an empty text if nothing does."""
    if base is None:
        calm = [
            scale
            for scale in (0.1, 0.01)
            if math.isfinite(_final_loss(_forked_training(subject, _QUICK, scale)["losses"]))
        ]
        is_found = bool(calm) and not math.isfinite(reached)
        return (f"the loss becomes {reached}, at {calm[0]:g} of it it does not", calm[0]) if is_found else ("", 0.0)
    if math.isfinite(reached):
        losses = _forked_training(subject, _LONG, 1.0)["losses"]
        if len(losses) < _FEWEST and math.isfinite(losses[-1]) and change <= thrown:
            return "", 0.0  # steps take so long that these are the first, where a loss may rise
        reached = _settled_loss(losses) / base
    smaller: list[tuple[float, float]] = []  # what the loss comes to, and the share of the rate
    for scale in (0.1, 0.01, 0.001):
        smaller.append((_final_loss(_forked_training(subject, _LONG, scale)["losses"]) / base, scale))
        if smaller[-1][0] < 0.5:
            break
    least, scale = min((pair for pair in smaller if math.isfinite(pair[0])), default=(math.inf, 0.0))
    if not reached <= diverged:
        limit = 0.9
    elif reached > 0.9:
        limit = 0.5
    else:
        limit = 0.5 * reached if change > thrown else 0.0
    text = f"the loss goes to {reached:.3g} times its first value, at {scale:g} of it to {least:.2g}"
    return (text, scale) if least < limit else ("", 0.0)


def _is_too_low(subject: Subject, change: float, base: float | None, reached: float, still: float) -> bool:
    if base is None:
        return change < still / 10

    def faster(aim: float) -> float:
        return _final_loss(_forked_training(subject, _LONG, aim / change)["losses"]) / base

    if change < still:  # rounding hides how small the smallest steps are
        return any(faster(aim) < 0.97 for aim in (_USUAL, 10 * _USUAL))
    return reached > 0.95 and faster(10 * _USUAL) < (0.8 if reached > 0.98 else 0.5)


def _steps_to_mean(subject: Subject) -> float:
    """Steps until the loss of values is that of the labels' mean, as a short training falls; 0 if it starts near.

    Layers that grow together move predictions by a power of the steps, which two lengths of training tell.
    """
    first = _distance(subject)
    if first < _FAR:
        return 0.0

    def gains(scale: float, *lengths: int) -> list[tuple[int, float]]:
        taken, gains_by_step = 0, []
        for steps in lengths:
            taken += len(train(subject, steps - taken, _LIMIT_S, scale, _RAMP))
            gains_by_step.append((taken, first - _distance(subject)))
        return gains_by_step

    (early, gain), (late, more) = sandbox.call(lambda: gains(1.0, _QUICK, _LONG), 20.0)
    [(steps, faster)] = sandbox.call(lambda: gains(100.0, _QUICK), 20.0)
    if not 0 < 10 * gain / early < faster / steps:
        return 0.0
    power = math.log(more / gain) / math.log(late / early) if more > gain and late > early else 1.0
    return early * ((first - 1) / gain) ** (1 / max(power, 1.0))


def _distance(subject: Subject) -> float:
    """The loss of values over that of their labels' mean, over all probe batches; 0 if the step has no such labels."""
    steps = (subject.record(batch).checked() for batch in subject.batches)  # anew: a training may lie between
    losses = [each for step in steps for each in supervised_losses(step) if each.kind == "regression"]
    baseline = sum(float(each.standard(each.baseline).sum()) for each in losses)
    return sum(float(each.standard(each.prediction.detach()).sum()) for each in losses) / baseline if baseline else 0.0


def _forked_training(subject: Subject, steps: int, scale: float) -> dict[str, list[float]]:
    """Of a training in a copy of the process: the losses before it and in it, the largest change by optimizer."""
    return sandbox.call(lambda: _training(subject, steps, scale), 20.0)


def _training(subject: Subject, steps: int, scale: float) -> dict[str, list[float]]:
    start = _start(subject) if steps == _QUICK else []  # first: a forward pass may set weights from its data
    weights = [
        (number, weight, weight.detach().clone())
        for number, optimizer in enumerate(subject.trainer.optimizers)
        for group in optimizer.param_groups
        for weight in group["params"]
        if weight.dim() > 1 and weight.requires_grad and bool(weight.any())  # what begins at zero leaves it at once
    ]
    changes, count = [0.0] * len(subject.trainer.optimizers), 0

    def after() -> None:
        nonlocal count
        count += 1
        for number, now, before in weights:
            if (count <= 10 or count % 10 == 0) and bool(before.any()):
                changes[number] = max(changes[number], float((now.detach() - before).norm() / before.norm()))
            before.copy_(now.detach())

    losses = [loss for loss in train(subject, steps, _LIMIT_S, scale, _RAMP, after) if loss is not None]
    return {"start": start or losses[:1], "losses": losses, "changes": changes}


def _start(subject: Subject) -> list[float]:
    """The loss on every probe batch before training; none of steps that optimise, or take gradients, themselves."""
    if not subject.model.automatic_optimization:
        return []
    with torch.no_grad(), suppress(RuntimeError):
        losses = [subject.train(batch) for batch in subject.batches[: 3 if subject.is_slow else None]]
        return [float(loss) for loss in losses if loss is not None]
    return []


def _final_loss(losses: list[float]) -> float:
    """The mean of the last eight, or what is no number."""
    return fmean(losses[-8:]) if losses and math.isfinite(losses[-1]) else math.nan


def _settled_loss(losses: list[float]) -> float:
    """What a training comes to: its last losses, unless most of its second half is lower and these stand out."""
    last = _final_loss(losses)
    return min(last, median(losses[len(losses) // 2 :])) if math.isfinite(last) else last


def _finding(subject: Subject, defect: Defect, message: str, better: float, number: int = 0) -> Finding:
    place, call = origins.optimizer(subject, number)
    rate = f"{better:.0e}".replace("e-0", "e-")
    name = type(subject.trainer.optimizers[number]).__name__
    fix = f"{name}(…, lr={rate})"
    if call is not None:
        name, rate = name_of(call), str(float(rate))
        others = [keyword for keyword in call.keywords if keyword.arg != "lr"]
        fix = ast.unparse(ast.Call(call.func, call.args[:1], [ast.keyword("lr", ast.Constant(float(rate))), *others]))
    return Finding(defect, place, message, fix, {"optimizer": name, "rate": rate})
