"""Activations between logits and a loss that expects logits."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from torchdoctor.evidence import origins
from torchdoctor.findings import Defect, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.losses import SHAPE_ONLY, losses
from torchdoctor.running.record import Op, Record
from torchdoctor.running.subject import Subject

DOUBLE_SOFTMAX = Defect(
    "double-softmax",
    "critical",
    "The loss cannot approach zero and its gradients are small: training is slow and poor.",
    explains=("loss-not-decreasing", "bad-initial-loss", "vanishing-gradient"),
)
SIGMOID_BEFORE_LOGITS_LOSS = Defect(
    "sigmoid-before-logits-loss",
    "critical",
    "The loss cannot approach zero; probabilities stay between 0.5 and 0.73.",
    explains=("loss-not-decreasing", "bad-initial-loss", "vanishing-gradient"),
)
ACTIVATION_ON_LOGITS = Defect(
    "activation-on-logits",
    "critical",
    "Classes cannot get the logits they need, and those that are cut off have no gradient.",
    explains=("loss-not-decreasing", "bad-initial-loss", "dead-units"),
)
MISSING_LOG_SOFTMAX = Defect(
    "missing-log-softmax",
    "critical",
    "It is no negative log-likelihood: confident mistakes cost little, or logits grow without a limit.",
    explains=("loss-not-decreasing", "bad-initial-loss"),
)
_SOFTMAX = ("softmax", "log_softmax", "gumbel_softmax")
_SIGMOID = ("sigmoid", "hardsigmoid", "logsigmoid", "expit")
_OTHERS = "relu relu6 leaky_relu tanh hardtanh elu selu celu gelu silu mish softplus hardswish softsign"
_DROPOUTS = ("dropout", "alpha_dropout")
_ACTIVATIONS = frozenset([*_SOFTMAX, *_SIGMOID, *_DROPOUTS, *_OTHERS.split()])
_UNBOUNDED = ("leaky_relu", "elu", "selu", "celu", "softplus")
_PRODUCTS = ("matmul", "bmm", "mm", "einsum", "mul")
_EXACT, _FEW = 1e-3, 0.05  # of a length or a sum; of samples: some may be masked
_MIXABLE = ("cross_entropy", "binary_cross_entropy_with_logits")  # what must not be given a mean of probabilities


def loss_input(subject: Subject) -> Iterator[Finding | str]:
    """Records a training step and looks at the call that made the operand of each loss over logits.

    Cross-entropy applies log-softmax and binary cross-entropy with logits applies the sigmoid themselves (torch's
    documentation of both); softmax before a log-softmax of one's own is the same mistake. Log-probabilities are
    logits as well: a second log-softmax leaves them as they are. Calls that only change the shape are looked
    through. Dropout there takes logits away at random. ELU and its like leave a softmax all that it needs: any
    distance between two logits, and a gradient for each. Soft-capping, as 30 · tanh(x / 30), ends in a product and
    is no activation. Logits of length 1 keep the loss of C classes above ln(1 + (C - 1) exp(-sqrt(C / (C - 1)))).
    The negative log-likelihood takes log-probabilities, whose exponentials add up to 1 for each sample, and so does
    the Kullback-Leibler divergence: nonnegative inputs that add up to 1 themselves are probabilities.
    """
    record = subject.step().record
    if (finding := next(_normalised_logits(record), None) or next(_missing_log(record), None)) is not None:
        yield finding
        return
    activations: dict[Place | None, Finding | None] = {}  # by the line that applies them
    operands = list(_operands(record))
    for operand, is_softmax, op in operands:
        maker = (_mixture(record, operand, is_softmax) if op.name in _MIXABLE else None) or record.producer(
            operand, SHAPE_ONLY
        )
        name = maker.name.removesuffix("_") if maker is not None else ""
        if maker is None or name not in _ACTIVATIONS or maker.place in activations:
            continue
        if name in _DROPOUTS and torch.equal(maker.out, maker.inputs[0]):  # a rate of 0
            continue
        if is_softmax and name in _UNBOUNDED:
            continue
        defect, fix = ACTIVATION_ON_LOGITS, "return logits  # as the last layer gives them"
        if is_softmax and name in _SOFTMAX:
            defect, fix = DOUBLE_SOFTMAX, "return logits  # without softmax: the loss applies it"
        elif not is_softmax and name in _SIGMOID:
            defect, fix = SIGMOID_BEFORE_LOGITS_LOSS, "return logits  # without the sigmoid: the loss applies it"
        is_idempotent = is_softmax and name == "log_softmax"  # a second one changes nothing
        where = f" at {op.place.seen_from(maker.place or op.place)}" if op.place else ""
        message, values = f"the result of {maker.name} goes into {op.name}{where}", {"activation": maker.name}
        if _is_multiplied(record, maker):
            message = f"{op.name}{where} gets the result of {maker.name}, which is used elsewhere, too"
            fix, values = "# give the loss what comes before it", {}
        finding = Finding(defect, _line(subject, maker), message, fix, values)
        activations[maker.place] = None if is_idempotent else finding
    yield from filter(None, activations.values())
    if operands and not activations:
        yield "losses over logits get logits"


PROBE = Probe(
    look=loss_input,
    defects=(DOUBLE_SOFTMAX, SIGMOID_BEFORE_LOGITS_LOSS, ACTIVATION_ON_LOGITS, MISSING_LOG_SOFTMAX),
    is_light=True,
)


def _normalised_logits(record: Record) -> Iterator[Finding]:
    """Findings of logits that are normalised to length 1, and not scaled again."""
    for loss in losses(record):
        logits = loss.prediction.detach()
        number = logits.shape[1] if logits.dim() == 2 else 0
        maker = record.producer(loss.prediction, SHAPE_ONLY)
        if not (loss.takes_logits and loss.kind == "classes" and number > 2 and maker is not None):
            continue
        if bool(((logits.norm(dim=1) - 1).abs() < _EXACT).all()):
            least = math.log1p((number - 1) * math.exp(-math.sqrt(number / (number - 1))))
            message = f"logits of length 1 for each sample: the loss of {number} classes stays above {least:.2f}"
            yield Finding(ACTIVATION_ON_LOGITS, maker.place, message, "scale * logits  # of 10 or more, or learned")


def _missing_log(record: Record) -> Iterator[Finding]:
    """Findings of a likelihood or divergence that gets probabilities, or other scores without a log-softmax."""
    for loss in (loss for loss in losses(record) if loss.op.name == "nll_loss" and loss.op.direct):
        scores, dim = loss.prediction.detach().float(), min(1, loss.prediction.dim() - 1)
        if loss.num_classes < 2 or not bool(scores.isfinite().all()):
            continue
        are_probabilities = bool((scores >= 0).all()) and _is_mostly_zero(scores.sum(dim) - 1)
        if are_probabilities or not _is_mostly_zero(scores.logsumexp(dim), share=_FEW):
            what = "probabilities" if are_probabilities else "scores"
            message = f"nll_loss gets {what}, whose exponentials do not add up to 1, in place of log-probabilities"
            fix, values = (
                "F.cross_entropy(logits, target)  # which takes their log-softmax",
                {"variant": "cross_entropy"},
            )
            if are_probabilities:
                fix, values = "F.nll_loss(logits.log_softmax(1), target)  # not of their softmax", {}
            yield Finding(MISSING_LOG_SOFTMAX, loss.op.place, message, fix, values)
    for op in record.named("kl_div"):
        scores = op.argument(0, "input")
        is_prediction = isinstance(scores, Tensor) and op.grad and scores.requires_grad and scores.dim() > 1
        if is_prediction and bool((scores >= 0).all()) and _is_mostly_zero(scores.detach().float().sum(-1) - 1):
            message = "kl_div gets probabilities in place of their logarithms: its gradients are those of a wrong loss"
            fix = "F.kl_div(logits.log_softmax(-1), target)  # not of their softmax"
            yield Finding(MISSING_LOG_SOFTMAX, op.place, message, fix)


def _is_mostly_zero(values: Tensor, share: float = 0.5) -> bool:
    return float((values.abs() < _EXACT).float().mean()) > share


def _operands(record: Record) -> Iterator[tuple]:
    """Operands that a softmax (True) or a sigmoid (False) is applied to on the way to a loss, with the call."""
    for loss in losses(record):
        if loss.takes_logits:
            yield loss.prediction, loss.kind == "classes", loss.op
        elif loss.op.name == "nll_loss":
            maker = record.producer(loss.prediction, SHAPE_ONLY)
            if maker is not None and maker.name == "log_softmax" and maker.inputs:
                yield maker.inputs[0], True, maker
    for op in record.named("log_softmax", "logsumexp"):
        maker = record.producer(op.inputs[0], SHAPE_ONLY) if op.inputs else None
        if op.grad and maker is not None and (maker.name in _SOFTMAX or _is_entropy(record, op)):
            yield op.inputs[0], True, op


def _is_multiplied(record: Record, maker: Op) -> bool:
    """Whether the model multiplies something by a result as well, as by attention weights."""
    tensors = list(maker.outputs)
    for tensor in tensors:
        for taker in record.takers(tensor):
            if taker.name in _PRODUCTS and any(out.requires_grad for out in taker.outputs):
                return True
            if taker.name in SHAPE_ONLY:
                tensors += [out for out in taker.outputs if all(out is not known for known in tensors)]
    return False


def _is_entropy(record: Record, op: Op) -> bool:
    """Whether a value is picked for each sample from what goes into logsumexp, or comes out of log_softmax."""
    scores = op.inputs[0] if op.name == "logsumexp" else op.out
    picks = [
        op
        for op in record.named("gather", "take_along_dim", "__getitem__")
        if any(leaf is scores for leaf in op.inputs[:1])
    ]
    return any(pick.grad and leaf.dtype == torch.long for pick in picks for leaf in pick.inputs[1:])


def _mixture(record: Record, values: Tensor, softmax: bool) -> Op | None:
    """The last softmax or sigmoid, if values are probabilities made of its results, as their mean, without weights."""
    dim = 1 if values.dim() > 1 else 0
    if values.numel() < 8 or values.min() < 0 or values.max() > 1:
        return None
    if softmax and (values.shape[dim] < 2 or ((values.sum(dim) - 1).abs() > 1e-3).any()):
        return None
    before = record.ancestors(values, lambda op, _: not any(isinstance(leaf, nn.Parameter) for leaf in op.inputs))
    activations = list(record.named("softmax" if softmax else "sigmoid"))
    return next((op for op in reversed(activations) if any(id(out) in before for out in op.outputs)), None)


def _line(subject: Subject, maker: Op) -> Place | None:
    """The line that makes the layer, if it stands in an nn.Sequential, so that no line of forward names it.

    Where that line makes several, in a helper, it is the line that calls the helper.
    """
    sequences = [part for part in subject.model.modules() if isinstance(part, nn.Sequential)]
    layer = next((child for part in sequences for child in part if child is maker.module), None)
    if layer is None:
        return maker.place
    makers = origins.makers(layer)
    others = [part for part in subject.model.modules() if part is not layer and type(part) is type(layer)]
    is_shared = any(origins.makers(part)[:1] == makers[:1] for part in others)
    callers = list(makers[1:2]) if is_shared else []
    return next(iter(callers), None) or origins.layer(subject.model, layer) or maker.place
