"""Initial losses far above that of an uninformed prediction."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn

from torchdoctor.evidence.dependence import module_name
from torchdoctor.evidence.initial_values import initialisation_line
from torchdoctor.evidence.supervised_step import SupervisedLoss, supervised_losses
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
_STEPS = 30
_STD = "0.01"  # of the weights of a layer that starts near zero


def initial_loss(
    subject: Subject, classes: float = 2.0, spread: float = 6.0, offset: float = 10.0
) -> Iterator[Finding | str]:
    """Computes every loss again with equal logits, or with the labels' mean, in place of the prediction.

    Thresholds: 2 times that for classes (clean programs: up to 1.5), 6 times for values that spread too far (clean: up
    to 2), 10 times for values whose mean is off, which the first steps of a bias mend. Only labels of the batch count:
    the targets of bootstrapping, or of pairs within a batch, have no such reference. Cosines times a scale start high
    by design. So do a decoder of unit scale, which has yet to learn the spread of its inputs, and classes told from
    samples of a distribution, whose spread is to be learned. Losses of elements that are weighed or masked have no such
    reference. A layer that is not trained starts as it was given. Values that 30 steps of the user's optimizer bring to
    half of their threshold start well enough. Source: Karpathy 2019, "A Recipe for Training Neural Networks": verify
    loss at init.

    Args:
        subject: the training that has just begun.
        classes: times the baseline, for losses over classes.
        spread: the same for values that spread too far.
        offset: the same for values whose mean is off.
    """
    excess_of = partial(_excess, classes=classes, spread=spread, offset=offset)
    worst: list[tuple[float, SupervisedLoss, Record]] = []
    for step in subject.steps(4):
        others = (_is_of_cosines, _is_sampled, _is_masked)
        candidates = [
            loss for loss in supervised_losses(step) if not any(is_other(step.record, loss) for is_other in others)
        ]
        candidates = [loss for loss in candidates if not _is_of_untrained_layer(subject, step.record, loss)]
        starts = [(excess_of(loss), loss, step.record) for loss in candidates]
        worst += [max(starts, key=lambda start: start[0])] if starts else []
        if not worst:
            return
    excess, loss, record = worst[0]
    first, baseline = _value(loss, loss.prediction), _value(loss, loss.baseline)
    is_regression = loss.kind == "regression"
    if is_regression and (_restores(record, loss) or not _is_mixed(subject)):
        return
    is_high = min(excess, median(start[0] for start in worst)) > 1
    if is_high and is_regression and _is_soon_mended(subject, excess_of):
        return
    if is_high:
        formula = {"classes": "equal logits (ln K)", "binary": "equal logits (ln 2)"}.get(loss.kind, "their mean")
        name = loss.op.name if loss.op.name in (*CLASSES, *BINARY, *REGRESSION) else "loss"
        message = f"the first {name} is {first:.3g}, far above {baseline:.3g}, that of {formula}"
        place, fix, values = _cause(subject, record, loss, excess_of)
        yield Finding(BAD_INITIAL_LOSS, place, message, fix, values)
        return
    if first <= classes * baseline:
        yield f"the first loss, {first:.3g}, is not far above {baseline:.3g}, that of a model that knows nothing"


PROBE = Probe(look=initial_loss, defects=(BAD_INITIAL_LOSS,), is_light=True, at_start=True)


def _value(loss: SupervisedLoss, prediction: Tensor) -> float:
    with torch.no_grad():
        return float(loss.standard(prediction.detach()).mean())


def _excess(
    loss: SupervisedLoss, prediction: Tensor | None = None, *, classes: float, spread: float, offset: float
) -> float:
    """The loss over that of a model that knows nothing, over the threshold for it; 0 where there is none to compare."""
    prediction = (loss.prediction if prediction is None else prediction).detach()
    first, baseline = _value(loss, prediction), _value(loss, loss.baseline)
    if not (baseline > 1e-6 and math.isfinite(first) and math.isfinite(baseline)):
        return 0.0
    if loss.kind != "regression":
        return first / baseline / classes
    values, targets = prediction.float(), loss.target.float()
    is_wide = values.std() > 1.5 * targets.std() and values.std() > (values.mean() - targets.mean()).abs()
    return first / baseline / (spread if bool(is_wide) else offset)


def _is_soon_mended(subject: Subject, excess_of: Callable[[SupervisedLoss], float]) -> bool:
    def later() -> float:
        train(subject, _STEPS, 3.0)
        return max(map(excess_of, supervised_losses(subject.record(subject.batches[0]))), default=1.0)

    return bool(sandbox.attempt(later, 12.0, math.inf) < 0.5)


def _restores(record: Record, loss: SupervisedLoss) -> bool:
    """Whether the labels are what the model got as its input."""
    nets = [arguments for module, arguments, _ in record.calls if any(True for _ in module.parameters())]
    inputs = [leaf for arguments in nets for leaf in tensors(arguments)]
    return any(leaf.shape == loss.target.shape and torch.equal(leaf.detach(), loss.target) for leaf in inputs)


def _is_mixed(subject: Subject) -> bool:
    """Whether every batch has values like every other: neighbours in time lie closer together than the whole does."""
    targets = []
    for step in subject.steps():
        targets += [loss.target.float() for loss in supervised_losses(step) if loss.kind == "regression"][:1]
    means, spreads = torch.stack([t.mean() for t in targets]), torch.stack([t.std() for t in targets])
    return len(targets) > 1 and bool(means.std() < 0.5 * spreads.mean())


def _is_of_cosines(record: Record, loss: SupervisedLoss) -> bool:
    """Whether logits are products of vectors of length 1, perhaps with a margin and a scale, as in metric learning."""
    kin = record.ancestors(loss.prediction, lambda op, _: op.name in _MARGIN)
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


def _is_of_untrained_layer(subject: Subject, record: Record, loss: SupervisedLoss) -> bool:
    """Whether the layer that predicts is not trained: it has no initialisation that training would have to undo."""
    maker = record.producer(loss.prediction, SHAPE_ONLY)
    weights = [leaf for leaf in maker.inputs if isinstance(leaf, nn.Parameter)] if maker is not None else []
    trained = trained_weights(subject)
    return bool(weights) and trained.isdisjoint(map(id, weights))


def _is_sampled(record: Record, loss: SupervisedLoss) -> bool:
    """Whether scores of classes are computed from noise that something learned scales, as codes of an autoencoder."""
    kin = record.ancestors(loss.prediction) if loss.kind != "regression" else set()
    noise = {id(op.out) for op in record.named(*NORMAL)} & kin
    scaling = [op for op in record.named("mul", "__mul__") if any(id(leaf) in noise for leaf in op.inputs)]
    return any(leaf.requires_grad for op in scaling for leaf in op.inputs)


def _is_masked(record: Record, loss: SupervisedLoss) -> bool:
    """Whether the losses of single elements are weighed or chosen among before they are added."""
    out, name = loss.op.out, loss.op.name
    is_whole = not isinstance(out, Tensor) or out.numel() < 2 or not name.endswith(("loss", "entropy", "logits"))
    return not is_whole and any(taker.name in _MASKING for taker in record.takers(out))


def _is_unit(vectors: Tensor, dim: int) -> bool:
    return bool(((vectors.norm(dim=dim) - 1).abs() < 1e-2).all())


def _cause(
    subject: Subject, record: Record, loss: SupervisedLoss, excess_of: Callable[[SupervisedLoss, Tensor], float]
) -> tuple[Place | None, str, dict[str, str]]:
    """The line, the fix and the values for the repair: a scaling to be undone, or the layer's bias or weights."""
    through = SHAPE_ONLY | {"log_softmax"}
    op = record.producer(loss.prediction, through)
    while op is not None and op.inputs and op.name in _ARITHMETIC:
        largest = max(op.inputs, key=lambda leaf: (leaf.requires_grad, float(leaf.detach().abs().max())))
        before = largest.detach()
        is_scaled = sum(leaf.requires_grad for leaf in op.inputs) == 1
        if is_scaled and before.numel() == loss.prediction.numel():
            before = before.reshape(loss.prediction.shape)
            before = before.log_softmax(1) if loss.op.name == "nll_loss" and before.dim() > 1 else before
            if excess_of(loss, before) < 1:
                code = op.place.code if op.place else ""
                return op.place, f"{code}  # without the factor", {"variant": "factor"}
        op = record.producer(largest, through)
    module = op.module if op is not None else None
    if module is None or module is subject.model or not list(nn.Module.parameters(module, recurse=False)):
        return (op or loss.op).place, "# scale the prediction so that it starts near zero", {}
    name = module_name(subject.model, module)
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if isinstance(weight, Tensor) and isinstance(bias, Tensor):
        values, mean = loss.prediction.detach().float(), float(loss.target.float().mean())
        place = initialisation_line(subject.model, module, "bias")
        if loss.kind == "regression" and abs(float(values.mean()) - mean) > float(values.std()):
            return place, f"nn.init.constant_(self.{name}.bias, {mean:.3g})  # or standardize the labels", {}
        if float(bias.detach().abs().max()) > 2 + 2 * float(weight.detach().abs().max()):
            return place, f"nn.init.zeros_(self.{name}.bias)", {"variant": "zero bias"}
    fix = f"nn.init.normal_(self.{name}.weight, std={_STD})"
    return initialisation_line(subject.model, module), fix, {"std": _STD}
