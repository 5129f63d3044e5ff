"""Dropout and noise that go on in evaluation."""

import ast
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from playbook.doctor import blame, source
from playbook.doctor.dependence import change, evaluated
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.losses import SHAPE_ONLY
from playbook.doctor.record import Op, Record, tensors
from playbook.doctor.subject import Subject

EVAL_NONDETERMINISM = Defect(
    "eval-nondeterminism",
    "critical",
    "Validation and predictions are noisy, and worse than the model is.",
    shown_by=Evidence("experiment", "the same batch was evaluated twice with other seeds"),
)
DEFECTS = (EVAL_NONDETERMINISM,)
LIGHT = True
_DROPOUT = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "dropout_")
_NOISE = ("randn", "randn_like", "normal", "normal_", "rand", "rand_like", "bernoulli", "bernoulli_", "uniform_")
_MASKING = (
    "lt",
    "gt",
    "le",
    "ge",
    "bool",
    "and",
    "or",
    "logical_and",
    "logical_or",
    "logical_not",
    "invert",
    "triu",
    "tril",
)
_SCALING = ("mul", "rmul", "div", "truediv")
_JOINING = ("add", "radd", "iadd", "sub", "mul", "rmul", "where")


def eval_randomness(subject: Subject) -> Iterator[Finding | str]:
    """Runs a validation step under two seeds, and names the call that makes the difference.

    Dropout counts wherever it is active. Noise counts if it is drawn inside a model's forward and added or multiplied
    as it is: noise that a trained spread scales (a variational autoencoder), that the loss looks at (diffusion), or
    that chooses positions (masking) is how such models are evaluated. Without a validation step, the training step is
    run in evaluation mode, where F.dropout must be told of it.
    """
    if not subject.validates:
        yield from (_finding(subject, op, _active(op)) for op in _untold(subject))
        return
    record = subject.step(training=False).record
    for op in record.ops:
        if op.name in _DROPOUT and _is_active(op):
            yield _finding(subject, op, _active(op))
            return
        if op.name == "scaled_dot_product_attention" and op.argument(4, "dropout_p", 0.0) > 0:
            yield _finding(subject, op, "attention drops weights in evaluation mode")
            return
    noise = next((op for op in record.ops if op.name in _NOISE and _is_plain(record, op)), None)
    if noise is not None and (differs := _difference(subject)) > 0:
        yield _finding(subject, noise, f"two evaluations of one batch differ by {differs:.2g} of the output's size")
        return
    yield "evaluation gives the same result twice"


def _untold(subject: Subject) -> list[Op]:
    """The first dropout that is active in evaluation mode, as its call says nothing of training."""
    for op in evaluated(subject, subject.batches[0]).record.named(*_DROPOUT):
        call = blame.call_at(op.place, "dropout") if op.place is not None and op.direct and _is_active(op) else None
        if (
            call is not None
            and len(call.args) < 3
            and all(item.arg not in (None, "training") for item in call.keywords)
        ):
            return [op]
    return []


def _active(op: Op) -> str:
    return f"{op.name} is active in evaluation mode, p = {op.argument(1, 'p', 0.5):g}"


def _is_active(op: Op) -> bool:
    return bool(op.argument(2, "training", True)) and op.argument(1, "p", 0.5) > 0


def _is_plain(record: Record, op: Op) -> bool:
    """Whether noise is drawn in a module's forward, and joins a computed tensor by a sum or product with constants."""
    if op.module is None or not isinstance(op.out, Tensor) or not op.out.is_floating_point() or op.place is None:
        return False
    made, spreads = {id(op.out)}, 0
    after = record.ops[record.ops.index(op) + 1 :]
    for later in after:
        taken = [item for item in later.inputs if id(item) in made]
        if not taken or not later.outputs or later.name.endswith("_like"):  # that takes its shape alone
            continue
        if later.module is None or later.name in ("argsort", "topk", "sort", "argmax", "multinomial"):
            return False  # the step looks at it, or it chooses positions
        others = [item for item in later.inputs if id(item) not in made]
        computed = [item for item in others if item.dim() and record.producer(item) is not None]
        name = later.name.strip("_")  # also of operators, and in place
        scales = (name in _SCALING and not computed) or (name in _JOINING and not others)
        if later.name in SHAPE_ONLY or name in _MASKING or scales:
            made |= {id(out) for out in later.outputs}  # also scaled by a number or a constant
        elif name in _JOINING:
            is_sum = "add" in name or "sub" in name
            mask = not is_sum and op.name in ("rand", "rand_like", "bernoulli", "bernoulli_", "uniform_")
            spreads += is_sum or mask
        else:
            return False
    return spreads > 0


def _difference(subject: Subject) -> float:
    records = []
    for seed in (1, 2):
        with subject.evaluating(), Record() as record:
            torch.manual_seed(seed)
            subject.validate(subject.val_batches[0])
        records.append([leaf for _, _, out in record.calls for leaf in tensors(out) if leaf.is_floating_point()])
    return max([change(a, b).max().item() for a, b in zip(*records, strict=False) if a.shape == b.shape], default=0.0)


def _finding(subject: Subject, op: Op, message: str) -> Finding:
    place: Place | None = op.place
    fix = "F.dropout(x, p, training=self.training)  # noise: if self.training: …"
    layer: nn.Module | None = op.module
    if layer is not None and source.definition(type(layer)) is None and layer.training:  # nn.Dropout in the wrong mode
        switched = _switch(subject)
        place, fix = (
            switched or blame.layer(subject.model, layer),
            "# leave the modes to Lightning: no .train()",
        )
    elif len(op.places) > 1 and place is not None and _is_told(place):
        place = op.places[1]  # the caller does not tell it
    return Finding(EVAL_NONDETERMINISM, place, message, fix)


def _is_told(place: Place) -> bool:
    """Whether the function around a line has an argument that says whether this is training."""
    function = source.function_at(place)
    return function is not None and "training" in {
        item.arg for item in ast.walk(function.args) if isinstance(item, ast.arg)
    }


def _switch(subject: Subject) -> Place | None:
    """Where the user's code turns training mode on."""
    return source.first_call(source.classes_in(subject.model), "train")
