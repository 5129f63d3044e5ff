"""Learning rates that throw the weights far away, or leave them where they are."""

import ast
import math
from collections.abc import Iterator
from statistics import fmean, median

import torch

from playbook.doctor import blame, sandbox
from playbook.doctor.findings import Defect, Evidence, Finding
from playbook.doctor.goals import goals
from playbook.doctor.subject import Subject
from playbook.doctor.training import peaks, train

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
DEFECTS = (LEARNING_RATE_TOO_HIGH, LEARNING_RATE_TOO_LOW)

_QUICK, _LONG, _RAMP = 30, 100, 5  # steps
_LIMIT_S = 3.0
_FAR, _PATIENCE, _REACHED_IN = 3.0, 1e5, 1e3  # first loss over that of the labels' mean; steps
_STILL, _SLOW, _USUAL, _TORN, _THROWN = 1e-5, 1e-4, 1e-3, 0.3, 3.0  # change of a weight a step, as a share of it


def learning_rate(subject: Subject) -> Iterator[Finding | str]:
    """Trains for 30 steps at the schedule's peak, with the user's optimizer, clipping and accumulation.

    Too high: the loss is no number, or more than twice the first while a tenth or a hundredth of the rate lowers it by
    a tenth, or not below 0.9 of the first while such a rate halves it. Clean programs reached 1.16 at most, and no
    smaller rate halved their loss. Where a step changes a weight by 30 % of itself, a tenth less is enough; where it
    changes one by three times itself, half of what the loss falls to.
    Too low: no weight of an optimizer changes by more than 1e-5 of itself in a step, where about 1e-3 is usual
    (Karpathy 2015, "Neural Networks Part 3"; clean programs reached 1e-3, fine-tuning 1e-4), and at the rate that makes
    it 1e-3 the loss falls. Or values start so far from their labels that the mean of these is 100 000 steps away, and a
    rate a hundred times as high gains ten times as much: targets of another scale than the rate.
    """
    if not subject.trainer.optimizers or not subject.batches:
        return
    seen = _run(subject, _QUICK, 1.0)
    if not seen["start"] or not all(map(math.isfinite, seen["start"])):
        return
    # a loss around zero, or of players against each other, need not fall: it may only stay a number
    base, spread = fmean(seen["start"]), max(seen["start"]) - min(seen["start"])
    falls = len(subject.trainer.optimizers) == 1 and base > 0 and base > spread / 2
    rates = sorted({rate for group in peaks(subject) for rate in group})
    reached = _level(seen["losses"]) / base if falls else 0.0 if math.isfinite(_level(seen["losses"])) else math.nan
    change = max(seen["changes"])
    if (not reached <= 0.8 and not change < _SLOW) or change > _THROWN:
        text = _too_high(subject, base if falls else None, reached, change)
        if text:
            yield _finding(subject, LEARNING_RATE_TOO_HIGH, f"at lr={rates[-1]:g} {text}", rates[-1] / 100)
            return
    least = min(filter(None, seen["changes"]), default=0.0)  # an optimizer may have its turn later
    if 0 < least < _SLOW and _is_too_low(subject, least, base if falls else None, reached):
        number = seen["changes"].index(least)
        rate = max(peaks(subject)[number])
        message = f"at lr={rate:g} no weight changes by more than {least:.1g} of itself in a step; 1e-3 is usual"
        yield _finding(subject, LEARNING_RATE_TOO_LOW, message, rate * _USUAL / least, number)
        return
    steps = _steps_to_mean(subject)
    if steps > _PATIENCE:
        message = f"at lr={rates[-1]:g} predictions would take some {steps:.0e} steps to the mean of the labels alone"
        yield _finding(subject, LEARNING_RATE_TOO_LOW, message, rates[-1] * steps / _REACHED_IN)
        return
    yield f"the learning rate moves weights by {change:.1g} of themselves in a step; the loss stays finite"


def _too_high(subject: Subject, base: float | None, reached: float, change: float) -> str:
    if base is None:
        calm = [scale for scale in (0.1, 0.01) if math.isfinite(_level(_run(subject, _QUICK, scale)["losses"]))]
        return (
            f"the loss becomes {reached}, at {calm[0]:g} of it it does not"
            if calm and not math.isfinite(reached)
            else ""
        )
    if math.isfinite(reached):
        reached = _settled(_run(subject, _LONG, 1.0)["losses"]) / base
    smaller: dict[float, float] = {}
    for scale in (0.1, 0.01, 0.001):
        smaller[scale] = _level(_run(subject, _LONG, scale)["losses"]) / base
        if smaller[scale] < 0.5:
            break
    scale = min(smaller, key=lambda scale: smaller[scale] if math.isfinite(smaller[scale]) else math.inf)
    least = smaller[scale]
    if (
        ((not math.isfinite(reached) or reached > 2) and least < 0.9)
        or (reached > 0.9 and least < (0.9 if change > _TORN else 0.5))
        or (change > _THROWN and least < 0.5 * reached)
    ):
        return f"the loss goes to {reached:.3g} times its first value, at {scale:g} of it to {least:.2g}"
    return ""


def _is_too_low(subject: Subject, change: float, base: float | None, reached: float) -> bool:
    if base is None:
        return change < _STILL / 10
    aim = _USUAL if change < _STILL else 10 * _USUAL
    for more in (1, 10):  # rounding hides how small the smallest steps are
        faster = _level(_run(subject, _LONG, more * aim / change)["losses"]) / base
        if faster < 0.97 if change < _STILL else (reached > 0.98 and faster < 0.8) or (reached > 0.95 and faster < 0.5):
            return True
        if change > _STILL:
            return False
    return False


def _steps_to_mean(subject: Subject) -> float:
    """Steps until the loss of values is that of the labels' mean, as a short training falls; 0 if it starts near."""
    first = _distance(subject)
    if first < _FAR:
        return 0.0

    def gain(scale: float) -> float:
        steps = len(train(subject, _QUICK, _LIMIT_S, scale, _RAMP))
        return (first - _distance(subject)) / steps

    usual, faster = (sandbox.call(lambda scale=scale: gain(scale), 20.0) for scale in (1.0, 100.0))
    return (first - 1) / usual if 0 < 10 * usual < faster else 0.0


def _distance(subject: Subject) -> float:
    """The loss of values over that of their labels' mean, over all probe batches; 0 if the step has no such labels."""
    first, ignorant = 0.0, 0.0
    for batch in subject.batches:  # anew: a training may lie between
        for goal in goals(subject.record(batch).checked()):
            if goal.kind == "regression":
                first += float(goal.plain(goal.prediction.detach()).sum())
                ignorant += float(goal.plain(goal.ignorant).sum())
    return first / ignorant if ignorant else 0.0


def _run(subject: Subject, steps: int, scale: float) -> dict:
    """Losses of a training in a copy of the process, and the largest change of a weight in a step by optimizer."""
    return sandbox.call(lambda: _training(subject, steps, scale), 20.0)


def _training(subject: Subject, steps: int, scale: float) -> dict:
    start = _start(subject) if steps == _QUICK else []  # first: a forward pass may set weights from its data
    weights = [
        (index, weight)
        for index, optimizer in enumerate(subject.trainer.optimizers)
        for group in optimizer.param_groups
        for weight in group["params"]
        if weight.dim() > 1 and weight.requires_grad and bool(weight.any())  # what begins at zero leaves it at once
    ]
    before = [weight.detach().clone() for _, weight in weights]
    changes, count = [0.0] * len(subject.trainer.optimizers), 0

    def after() -> None:
        nonlocal count
        count += 1
        if count > 10 and count % 10:
            pass
        elif scale:
            for old, (index, new) in zip(before, weights, strict=True):
                size = old.norm()
                if size > 0:
                    changes[index] = max(changes[index], float((new.detach() - old).norm() / size))
        for old, (_, new) in zip(before, weights, strict=True):
            old.copy_(new.detach())

    losses = [loss for loss in train(subject, steps, _LIMIT_S, scale, _RAMP, after) if loss is not None]
    return {"start": start or losses[:1], "losses": losses, "changes": changes}


def _start(subject: Subject) -> list[float]:
    """The loss on every probe batch before training; manual optimization has only that of its first step."""
    if not subject.model.automatic_optimization:
        return []
    with torch.no_grad():
        try:
            found = [subject.train(batch) for batch in subject.batches[: 3 if subject.is_slow else None]]
        except RuntimeError:  # a step that takes gradients itself
            return []
    return [float(loss) for loss in found if loss is not None]


def _level(losses: list[float]) -> float:
    """The mean of the last eight, or what is no number."""
    if not losses or not math.isfinite(losses[-1]):
        return math.nan
    return fmean(losses[-8:])


def _settled(losses: list[float]) -> float:
    """What a training comes to: its last losses, unless most of its second half is lower and these stand out."""
    last = _level(losses)
    return min(last, median(losses[len(losses) // 2 :])) if math.isfinite(last) else last


def _finding(subject: Subject, defect: Defect, message: str, better: float, number: int = 0) -> Finding:
    place, call = blame.optimizer(subject, number)
    mantissa = f"{better:.0e}".replace("e-0", "e-")
    fix = f"{type(subject.trainer.optimizers[number]).__name__}(…, lr={mantissa})"
    if call is not None:
        others = [keyword for keyword in call.keywords if keyword.arg != "lr"]
        fix = ast.unparse(
            ast.Call(call.func, call.args[:1], [ast.keyword("lr", ast.Constant(float(mantissa))), *others])
        )
    return Finding(defect, place, message, fix)
