"""First losses far above what a model that knows nothing would have."""

import math
from collections.abc import Iterator
from statistics import median

import torch
from torch import Tensor, nn

from playbook.doctor import sandbox
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.goals import Goal, goals
from playbook.doctor.initial import initialisation
from playbook.doctor.losses import SHAPE_ONLY
from playbook.doctor.record import Op, Record, tensors
from playbook.doctor.subject import Subject
from playbook.doctor.training import train

BAD_INITIAL_LOSS = Defect(
    "bad-initial-loss",
    "warning",
    "The first epochs are spent on undoing the initialisation.",
    shown_by=Evidence("experiment", "the first loss was compared with that of a constant prediction"),
)
DEFECTS = (BAD_INITIAL_LOSS,)
LIGHT = True

_MARGIN = SHAPE_ONLY | {"where", "clamp", "acos", "cos", "sqrt", "sum", "add", "sub", "rsub", "mul", "pow"}
_MARGIN |= {f"__{name}__" for name in ("add", "sub", "rsub", "mul", "pow", "radd", "rmul")}
_CLASSES, _SPREAD, _OFFSET = 2.0, 6.0, 10.0
_STEPS = 30


def initial_loss(subject: Subject) -> Iterator[Finding | str]:
    """Computes every loss again with equal logits, or with the labels' mean, in place of the prediction.

    Thresholds: 2 times that for classes (clean programs: up to 1.5), 6 times for values that spread too far (clean: up
    to 2), 10 times for values whose mean is off, which the first steps of a bias mend. Only labels of the batch count:
    the targets of bootstrapping, or of pairs within a batch, have no such reference. Cosines times a scale start high
    by design, and so does a decoder of unit scale, which has yet to learn the spread of its inputs. Values that 30
    steps of the user's optimizer bring to half of their threshold start well enough. Source: Karpathy 2019, "A Recipe
    for Training Neural Networks": verify loss at init.
    """
    ratios: list[tuple[float, float, float]] = []
    for step in subject.steps(4):
        seen = [_measure(goal) for goal in goals(step) if not _is_scaled_cosine(step.record, goal)]
        ratios += [max(seen)] if seen else []
    record = subject.step().record
    found = [goal for goal in goals(subject.step()) if not _is_scaled_cosine(record, goal)]
    if not ratios or not found:
        return
    goal = max(found, key=_measure)
    ratio, first, ignorant = _measure(goal)
    if goal.kind == "regression" and (_restores(record, goal) or not _is_mixed(subject)):
        return
    high = min(ratio, median(item[0] for item in ratios)) > 1
    if high and goal.kind == "regression" and _is_soon_mended(subject):
        return
    if high:
        known = f"{ignorant:.3g}, that of " + (
            "their mean" if goal.kind == "regression" else f"equal logits ({_formula(goal)})"
        )
        place, fix = _cause(subject, record, goal)
        yield Finding(BAD_INITIAL_LOSS, place, f"the first loss is {first:.3g}, far above {known}", fix)
        return
    yield f"the first loss, {first:.3g}, is near that of a model that knows nothing, {ignorant:.3g}"


def _is_soon_mended(subject: Subject) -> bool:
    def later() -> float:
        train(subject, _STEPS, 3.0)
        return max((_measure(goal)[0] for goal in goals(subject.record(subject.batches[0]))), default=1.0)

    try:
        return bool(sandbox.call(later, 12.0) < 0.5)
    except sandbox.SandboxError:
        return False


def _restores(record: Record, goal: Goal) -> bool:
    """Whether the labels are what the model got as its input."""
    given = [leaf for _, arguments, _ in record.calls for leaf in tensors(arguments)]
    return any(leaf.shape == goal.target.shape and torch.equal(leaf.detach(), goal.target) for leaf in given)


def _is_mixed(subject: Subject) -> bool:
    """Whether every batch has values like every other: neighbours in time lie closer together than the whole does."""
    targets = []
    for step in subject.steps():
        targets += [goal.target.float() for goal in goals(step) if goal.kind == "regression"][:1]
    means, spreads = torch.stack([t.mean() for t in targets]), torch.stack([t.std() for t in targets])
    return len(targets) > 1 and bool(means.std() < 0.5 * spreads.mean())


def _measure(goal: Goal) -> tuple[float, float, float]:
    """The loss over the ignorant one and over the threshold for it, and both losses."""
    with torch.no_grad():
        prediction = goal.prediction.detach()
        first, ignorant = float(goal.plain(prediction).sum()), float(goal.plain(goal.ignorant).sum())
        limit = _CLASSES
        if goal.kind == "regression":
            offset = (prediction.float().mean() - goal.target.float().mean()).abs()
            wide = prediction.float().std() > 1.5 * goal.target.float().std() and prediction.float().std() > offset
            limit = _SPREAD if bool(wide) else _OFFSET
    usable = ignorant > 1e-6 and math.isfinite(first) and math.isfinite(ignorant)
    return (first / ignorant / limit if usable else 0.0), first, ignorant


def _formula(goal: Goal) -> str:
    return "ln 2" if goal.kind == "binary" else "ln K"


def _is_scaled_cosine(record: Record, goal: Goal) -> bool:
    """Logits that are cosines times a scale, as in metric learning."""
    op = record.producer(goal.prediction, SHAPE_ONLY)
    for _ in range(4):
        if op is None or not op.inputs:
            return False
        parts = [leaf for leaf in op.inputs if leaf.dim() > 1]
        if op.name in ("mul", "__mul__", "div", "__truediv__", "__rmul__") and parts and _is_cosine(record, parts[0]):
            return True
        op = record.producer(op.inputs[0], SHAPE_ONLY) if op.name in ("mul", "div", "where", "sub", "add") else None
    return False


def _is_cosine(record: Record, value: Tensor) -> bool:
    """Whether a tensor is made of products of vectors of length 1, perhaps with a margin."""
    if float(value.detach().abs().max()) > 1.001:
        return False
    kin = record.ancestors(value, lambda op, _: op.name in _MARGIN)
    for op in record.ops:
        vectors = [leaf.detach() for leaf in op.inputs if leaf.dim() > 1 and leaf.is_floating_point()]
        unit = len(vectors) > 1 and all(any(_is_unit(leaf, dim) for dim in (-1, -2, 1)) for leaf in vectors)
        if (unit or op.name == "cosine_similarity") and any(id(out) in kin for out in op.outputs):
            return True
    return False


def _is_unit(vectors: Tensor, dim: int) -> bool:
    return bool(((vectors.norm(dim=dim) - 1).abs() < 1e-2).all())


def _cause(subject: Subject, record: Record, goal: Goal) -> tuple[Place | None, str]:
    """A scaling of the prediction, if undoing it mends the loss; else the layer that makes it."""
    op = record.producer(goal.prediction, SHAPE_ONLY)
    if op is not None and op.name == "log_softmax":
        op = record.producer(op.inputs[0], SHAPE_ONLY)
    while (
        op is not None
        and op.name in ("mul", "div", "__mul__", "__truediv__", "__rmul__", "add", "sub", "__add__", "__sub__")
        and op.inputs
    ):
        before = op.inputs[0].detach()
        if before.numel() == goal.prediction.numel() and _mended(goal, before.reshape(goal.prediction.shape)):
            return op.place, f"{op.place.code if op.place else ''}  # without the factor"
        op = record.producer(op.inputs[0], SHAPE_ONLY)
    module = _layer(subject, op)
    if module is None:
        return (op.place if op is not None else goal.op.place), "# scale the prediction so that it starts near zero"
    name = next((name for name, part in subject.model.named_modules() if part is module), "head")
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if goal.kind == "regression" and isinstance(bias, Tensor):
        offset = float(goal.prediction.detach().float().mean() - goal.target.float().mean())
        if abs(offset) > float(goal.prediction.detach().float().std()):
            mean = f"{float(goal.target.float().mean()):.3g}"
            fix = f"nn.init.constant_(self.{name}.bias, {mean})  # or standardize the labels"
            return initialisation(subject.model, module, "bias"), fix
    if (
        isinstance(bias, Tensor)
        and isinstance(weight, Tensor)
        and float(bias.detach().abs().max()) > 2 + 2 * float(weight.detach().abs().max())
    ):
        return initialisation(subject.model, module, "bias"), f"nn.init.zeros_(self.{name}.bias)"
    return initialisation(subject.model, module, "weight"), f"nn.init.normal_(self.{name}.weight, std=0.01)"


def _mended(goal: Goal, before: Tensor) -> bool:
    with torch.no_grad():
        before = before.log_softmax(1) if goal.op.name == "nll_loss" and before.dim() > 1 else before
        first, ignorant = float(goal.plain(before).sum()), float(goal.plain(goal.ignorant).sum())
    return first / ignorant < (_CLASSES if goal.kind != "regression" else _SPREAD)


def _layer(subject: Subject, op: Op | None) -> nn.Module | None:
    if (
        op is None
        or op.module is None
        or op.module is subject.model
        or not list(nn.Module.parameters(op.module, recurse=False))
    ):
        return None
    return op.module
