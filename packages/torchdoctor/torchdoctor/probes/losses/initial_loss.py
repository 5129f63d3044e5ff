"""First losses far above what a model that knows nothing would have."""

import math
from collections.abc import Iterator
from statistics import median

import torch
from torch import Tensor, nn

from torchdoctor.evidence.dependence import owner_of
from torchdoctor.evidence.initial_values import initialisation
from torchdoctor.evidence.supervised_step import Goal, goals
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running import sandbox
from torchdoctor.running.losses import BINARY, CLASSES, REGRESSION, SHAPE_ONLY
from torchdoctor.running.record import NORMAL, Record, tensors
from torchdoctor.running.subject import Subject
from torchdoctor.running.training import train, trained_weights

BAD_INITIAL_LOSS = Defect(
    "bad-initial-loss",
    "warning",
    "The first epochs are spent on undoing the initialisation.",
    shown_by=Evidence("experiment", "the first loss was compared with that of a constant prediction"),
)

_ARITHMETIC = {f"{form}{name}{form}" for form in ("", "__") for name in ("add", "sub", "mul", "div", "rsub", "rmul")}
_ARITHMETIC |= {"__truediv__", "__radd__"}
_MASKING = ("mul", "__mul__", "__rmul__", "mul_", "__getitem__", "masked_select", "masked_fill", "where")
_MARGIN = SHAPE_ONLY | _ARITHMETIC | {"where", "clamp", "acos", "cos", "sqrt", "sum", "pow", "__pow__"}
_CLASSES, _SPREAD, _OFFSET = 2.0, 6.0, 10.0
_STEPS = 30
_STD = "0.01"  # of the weights of a layer that starts near zero


def initial_loss(subject: Subject) -> Iterator[Finding | str]:
    """Computes every loss again with equal logits, or with the labels' mean, in place of the prediction.

    Thresholds: 2 times that for classes (clean programs: up to 1.5), 6 times for values that spread too far (clean: up
    to 2), 10 times for values whose mean is off, which the first steps of a bias mend. Only labels of the batch count:
    the targets of bootstrapping, or of pairs within a batch, have no such reference. Cosines times a scale start high
    by design. So do a decoder of unit scale, which has yet to learn the spread of its inputs, and classes told from
    samples of a distribution, whose spread is to be learned. Losses of elements that are weighed or masked have no such
    reference. A layer that is not trained starts as it was given. Values that 30 steps of the user's optimizer bring to
    half of their threshold start well enough. Source: Karpathy 2019, "A Recipe for Training Neural Networks": verify
    loss at init.
    """
    worst: list[tuple[float, Goal, Record]] = []
    for step in subject.steps(4):
        others = (_is_of_cosines, _is_sampled, _is_masked)
        found = [goal for goal in goals(step) if not any(is_other(step.record, goal) for is_other in others)]
        found = [goal for goal in found if not _is_given(subject, step.record, goal)]
        starts = [(_excess(goal), goal, step.record) for goal in found]
        worst += [max(starts, key=lambda start: start[0])] if starts else []
        if not worst:
            return
    excess, goal, record = worst[0]
    first, ignorant = _value(goal, goal.prediction), _value(goal, goal.ignorant)
    is_regression = goal.kind == "regression"
    if is_regression and (_restores(record, goal) or not _is_mixed(subject)):
        return
    is_high = min(excess, median(start[0] for start in worst)) > 1
    if is_high and is_regression and _is_soon_mended(subject):
        return
    if is_high:
        formula = {"classes": "equal logits (ln K)", "binary": "equal logits (ln 2)"}.get(goal.kind, "their mean")
        name = goal.op.name if goal.op.name in (*CLASSES, *BINARY, *REGRESSION) else "loss"
        message = f"the first {name} is {first:.3g}, far above {ignorant:.3g}, that of {formula}"
        place, fix, values = _cause(subject, record, goal)
        yield Finding(BAD_INITIAL_LOSS, place, message, fix, values)
        return
    if first <= _CLASSES * ignorant:
        yield f"the first loss, {first:.3g}, is not far above {ignorant:.3g}, that of a model that knows nothing"


PROBE = Probe(look=initial_loss, defects=(BAD_INITIAL_LOSS,), is_light=True, at_start=True)


def _value(goal: Goal, prediction: Tensor) -> float:
    with torch.no_grad():
        return float(goal.plain(prediction.detach()).mean())


def _excess(goal: Goal, prediction: Tensor | None = None) -> float:
    """The loss over that of a model that knows nothing, over the threshold for it; 0 where there is none to compare."""
    prediction = (goal.prediction if prediction is None else prediction).detach()
    first, ignorant = _value(goal, prediction), _value(goal, goal.ignorant)
    if not (ignorant > 1e-6 and math.isfinite(first) and math.isfinite(ignorant)):
        return 0.0
    if goal.kind != "regression":
        return first / ignorant / _CLASSES
    values, targets = prediction.float(), goal.target.float()
    is_wide = values.std() > 1.5 * targets.std() and values.std() > (values.mean() - targets.mean()).abs()
    return first / ignorant / (_SPREAD if bool(is_wide) else _OFFSET)


def _is_soon_mended(subject: Subject) -> bool:
    def later() -> float:
        train(subject, _STEPS, 3.0)
        return max(map(_excess, goals(subject.record(subject.batches[0]))), default=1.0)

    return bool(sandbox.attempt(later, 12.0, math.inf) < 0.5)


def _restores(record: Record, goal: Goal) -> bool:
    """Whether the labels are what the model got as its input."""
    nets = [arguments for module, arguments, _ in record.calls if any(True for _ in module.parameters())]
    given = [leaf for arguments in nets for leaf in tensors(arguments)]
    return any(leaf.shape == goal.target.shape and torch.equal(leaf.detach(), goal.target) for leaf in given)


def _is_mixed(subject: Subject) -> bool:
    """Whether every batch has values like every other: neighbours in time lie closer together than the whole does."""
    targets = []
    for step in subject.steps():
        targets += [goal.target.float() for goal in goals(step) if goal.kind == "regression"][:1]
    means, spreads = torch.stack([t.mean() for t in targets]), torch.stack([t.std() for t in targets])
    return len(targets) > 1 and bool(means.std() < 0.5 * spreads.mean())


def _is_of_cosines(record: Record, goal: Goal) -> bool:
    """Whether logits are products of vectors of length 1, perhaps with a margin and a scale, as in metric learning."""
    kin = record.ancestors(goal.prediction, lambda op, _: op.name in _MARGIN)
    for op in record.ops:
        dense = [leaf.detach() for leaf in op.inputs if leaf.layout == torch.strided]
        vectors = [leaf for leaf in dense if leaf.dim() > 1 and leaf.is_floating_point()]
        are_unit = [any(_is_unit(leaf, dim) for dim in (-1, -2, 1)) for leaf in vectors]
        are_small = (
            isinstance(op.out, Tensor)
            and op.out.is_floating_point()
            and op.out.layout == torch.strided
            and bool((op.out.detach().abs() < 1.01).all())
        )
        are_cosines = len(vectors) > 1 and (all(are_unit) or (any(are_unit) and are_small))  # weights change after it
        if any(id(out) in kin for out in op.outputs) and (are_cosines or op.name == "cosine_similarity"):
            return True
    return False


def _is_given(subject: Subject, record: Record, goal: Goal) -> bool:
    """Whether the layer that predicts is not trained: it has no initialisation that training would have to undo."""
    maker = record.producer(goal.prediction, SHAPE_ONLY)
    weights = [leaf for leaf in maker.inputs if isinstance(leaf, nn.Parameter)] if maker is not None else []
    trained = trained_weights(subject)
    return bool(weights) and trained.isdisjoint(map(id, weights))


def _is_sampled(record: Record, goal: Goal) -> bool:
    """Whether scores of classes are computed from noise that something learned scales, as codes of an autoencoder."""
    kin = record.ancestors(goal.prediction) if goal.kind != "regression" else set()
    noise = {id(op.out) for op in record.named(*NORMAL)} & kin
    scaling = [op for op in record.named("mul", "__mul__") if any(id(leaf) in noise for leaf in op.inputs)]
    return any(leaf.requires_grad for op in scaling for leaf in op.inputs)


def _is_masked(record: Record, goal: Goal) -> bool:
    """Whether the losses of single elements are weighed or chosen among before they are added."""
    out, name = goal.op.out, goal.op.name
    is_whole = not isinstance(out, Tensor) or out.numel() < 2 or not name.endswith(("loss", "entropy", "logits"))
    return not is_whole and any(taker.name in _MASKING for taker in record.takers(out))


def _is_unit(vectors: Tensor, dim: int) -> bool:
    return bool(((vectors.norm(dim=dim) - 1).abs() < 1e-2).all())


def _cause(subject: Subject, record: Record, goal: Goal) -> tuple[Place | None, str, dict[str, str]]:
    """The line, the fix and the values for the repair: a scaling to be undone, or the layer's bias or weights."""
    through = SHAPE_ONLY | {"log_softmax"}
    op = record.producer(goal.prediction, through)
    while op is not None and op.inputs and op.name in _ARITHMETIC:
        largest = max(op.inputs, key=lambda leaf: (leaf.requires_grad, float(leaf.detach().abs().max())))
        before = largest.detach()
        is_scaled = sum(leaf.requires_grad for leaf in op.inputs) == 1
        if is_scaled and before.numel() == goal.prediction.numel():
            before = before.reshape(goal.prediction.shape)
            before = before.log_softmax(1) if goal.op.name == "nll_loss" and before.dim() > 1 else before
            if _excess(goal, before) < 1:
                code = op.place.code if op.place else ""
                return op.place, f"{code}  # without the factor", {"variant": "factor"}
        op = record.producer(largest, through)
    module = op.module if op is not None else None
    if module is None or module is subject.model or not list(nn.Module.parameters(module, recurse=False)):
        return (op or goal.op).place, "# scale the prediction so that it starts near zero", {}
    name = owner_of(subject.model, module)
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if isinstance(weight, Tensor) and isinstance(bias, Tensor):
        values, mean = goal.prediction.detach().float(), float(goal.target.float().mean())
        place = initialisation(subject.model, module, "bias")
        if goal.kind == "regression" and abs(float(values.mean()) - mean) > float(values.std()):
            return place, f"nn.init.constant_(self.{name}.bias, {mean:.3g})  # or standardize the labels", {}
        if float(bias.detach().abs().max()) > 2 + 2 * float(weight.detach().abs().max()):
            return place, f"nn.init.zeros_(self.{name}.bias)", {"variant": "zero bias"}
    fix = f"nn.init.normal_(self.{name}.weight, std={_STD})"
    return initialisation(subject.model, module), fix, {"std": _STD}
