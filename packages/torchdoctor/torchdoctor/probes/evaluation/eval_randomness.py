"""Dropout and noise that remain active in evaluation."""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from torchdoctor import source
from torchdoctor.evidence import origins
from torchdoctor.evidence.dependence import evaluation_step, relative_change
from torchdoctor.findings import Defect, Evidence, Finding
from torchdoctor.probe import Probe
from torchdoctor.running.losses import SHAPE_ONLY
from torchdoctor.running.record import NORMAL, UNIFORM, Op, Record, memory, tensors
from torchdoctor.running.subject import Subject

EVAL_NONDETERMINISM = Defect(
    "eval-nondeterminism",
    "critical",
    "Validation and predictions are noisy, and worse than the model is.",
    shown_by=Evidence("experiment", "the same batch was evaluated twice with other seeds"),
)
SAME_TWICE = "evaluation of a batch gives the same result twice"

_DROPOUT = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "dropout_")
_NOISE = (*UNIFORM, *NORMAL)
_LOGIC = ("lt", "gt", "le", "ge", "bool", "and", "or", "logical_and", "logical_or", "logical_not", "invert")
_MASKING = SHAPE_ONLY | {*_LOGIC, "triu", "tril"}
_SUMS, _PRODUCTS, _QUOTIENTS = ("add", "radd", "iadd", "sub"), ("mul", "rmul", "where"), ("div", "truediv")
_DRAWING = ("randint", "randint_like", "randperm", "multinomial", "gumbel_softmax")
_SAMPLES = 3  # calls with the same values; a loss may need two
_WHOLE = 0.01  # of a step; float32 pixels times 255 are off by 1e-5
_CHOOSING = ("argsort", "topk", "sort", "argmax", "multinomial")


def eval_randomness(subject: Subject) -> Iterator[Finding | str]:
    """Runs a validation step under two seeds, and names the call that makes the difference.

    Dropout counts wherever it is active. Noise counts if it is drawn inside a model's forward and added or multiplied
    as it is: noise that a trained spread scales (a variational autoencoder), that the loss looks at (diffusion), or
    that chooses positions (masking) is how such models are evaluated; so is uniform noise that fills the steps between
    whole numbers (dequantisation, Theis et al. 2016). A step that calls a model several times with the same values
    averages over what it draws (Gal and Ghahramani 2016). Normal noise that an object of the user's adds which is no
    module, as a channel that is simulated, is an advice. Without a validation step, the training step is run in
    evaluation mode, where F.dropout must be told of it.
    """
    step = subject.step(training=False) if subject.validates else evaluation_step(subject, subject.batches[0])
    record = step.record
    if _samples(record):
        return
    dropout = next((op for op in record.ops if _rate(op) > 0 and (subject.validates or _is_untold(op))), None)
    if dropout is not None:
        yield _finding(subject, dropout, f"{dropout.name} is active in evaluation mode, p = {_rate(dropout):g}")
        return
    if not subject.validates:
        return
    noise = next((op for op in record.named(*_NOISE) if _is_plain(record, op)), None)
    differs = _difference(subject) if any(record.named(*_NOISE, *_DRAWING)) else 0.0
    if noise is not None and differs > 0:
        finding = _finding(subject, noise, f"two evaluations of one batch differ by {differs:.2g} of the output's size")
        mild = replace(finding, defect=replace(finding.defect, severity="advice"))
        yield mild if _is_of_object(subject, noise) else finding
        return
    if differs == 0:
        yield SAME_TWICE


PROBE = Probe(look=eval_randomness, defects=(EVAL_NONDETERMINISM,), is_light=True)


def _samples(record: Record) -> bool:
    """Whether a step calls a module with the same values again and again; not with what is filled anew in between."""
    filled = {memory(op.inputs[0]) for op in record.named("copy_", "set_", "resize_") if op.inputs}
    calls_with_tensors = [(module, tensors(arguments)) for module, arguments, _ in record.calls]
    calls = Counter(
        (module, *map(id, leaves)) for module, leaves in calls_with_tensors if filled.isdisjoint(map(memory, leaves))
    )
    return max(calls.values(), default=0) >= _SAMPLES


def _rate(op: Op) -> float:
    """The share that a call drops; 0 if it is no dropout, or inactive."""
    if op.name == "scaled_dot_product_attention":
        return op.argument(4, "dropout_p", 0.0)
    return op.argument(1, "p", 0.5) if op.name in _DROPOUT and op.argument(2, "training", True) else 0.0


def _is_untold(op: Op) -> bool:
    """Whether the user's call of dropout does not say whether this is training, nor gets its rate from a caller."""
    place = op.place if op.direct else None
    call = origins.call_at(place, "dropout") if place is not None else None
    if place is None or call is None:
        return False
    options = {item.arg: item.value for item in call.keywords}
    rates = [*call.args[1:], *(value for name, value in options.items() if name == "p")]
    is_told = len(call.args) > 2 or not options.keys().isdisjoint({"training", None})
    return not is_told and source.parameters(place).isdisjoint(map(ast.unparse, rates))


def _is_plain(record: Record, op: Op) -> bool:
    """Whether noise is drawn in a module's forward, and joins a computed tensor by a sum or product with constants."""
    if op.module is None or not isinstance(op.out, Tensor) or not op.out.is_floating_point() or op.place is None:
        return False
    noise, is_joined = {id(op.out)}, False
    for later in record.ops[record.ops.index(op) + 1 :]:
        others = [item for item in later.inputs if id(item) not in noise]
        if len(others) == len(later.inputs) or not later.outputs or later.takes_shape_alone:  # the shape alone
            continue
        if later.module is None or later.name in _CHOOSING:
            return False  # the step looks at it, or it chooses positions
        is_computed = any(item.dim() and record.producer(item) is not None for item in others)
        name = later.name.strip("_")  # also of operators, and in place
        if name in _SUMS and any(_is_dequantised(item, later, op, noise) for item in others):
            return False
        if (name in _SUMS and others) or (name in _PRODUCTS and is_computed and op.name in UNIFORM):
            is_joined = True
        elif name in _MASKING or (name in (*_SUMS, *_PRODUCTS, *_QUOTIENTS) and not is_computed):
            noise |= {id(out) for out in later.outputs}
        elif name not in _PRODUCTS:  # that scale it by something computed
            return False
    return is_joined


def _is_of_object(subject: Subject, op: Op) -> bool:
    """Whether a method of a class that the model is not made of draws normal noise."""
    owners = {node.name for node in source.around(op.place, ast.ClassDef)} if op.place is not None else set()
    known = {cls.__name__ for cls in source.classes_in(subject.model)}
    return op.name in NORMAL and bool(owners) and owners.isdisjoint(known)


def _is_dequantised(values: Tensor, total: Op, draw: Op, noise: set[int]) -> bool:
    """Whether uniform noise is as wide as the steps between values that it is added to."""
    if draw.name not in ("rand", "rand_like") or values.numel() < 2 or not values.is_floating_point():
        return False
    width = next(item for item in total.inputs if id(item) in noise).detach().sum() / draw.out.sum()
    steps = values.detach().double() / width.double()
    return bool((steps.amax() > steps.amin()) & ((steps - steps.round()).abs().amax() < _WHOLE))


def _difference(subject: Subject) -> float:
    """The largest change of what modules give to the validation step between two seeds."""
    outputs = []
    for seed in (1, 2):
        with subject.evaluating(), Record() as record:
            torch.manual_seed(seed)
            subject.validate(subject.val_batches[0])
        outputs.append([leaf for _, _, out in record.calls for leaf in tensors(out) if leaf.is_floating_point()])
    return max(
        [relative_change(a, b).max().item() for a, b in zip(*outputs, strict=False) if a.shape == b.shape], default=0.0
    )


def _finding(subject: Subject, op: Op, message: str) -> Finding:
    layer = op.module
    if layer is not None and source.definition(type(layer)) is None and layer.training:  # nn.Dropout in the wrong mode
        switch = source.first_call(source.classes_in(subject.model), "train")
        place = switch or origins.layer(subject.model, layer)
        fix = "# leave the modes to Lightning: no .train()"
        return Finding(EVAL_NONDETERMINISM, place, message, fix, {"variant": "modes"})
    fix = "F.dropout(x, p, training=self.training)  # noise: if self.training: …"
    places = [place for place in op.places[:2] if "training" not in source.parameters(place)]  # else the caller decides
    return Finding(EVAL_NONDETERMINISM, next(iter(places), op.place), message, fix, {"variant": "condition"})
