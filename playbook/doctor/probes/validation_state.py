"""Validation that changes the model it measures."""

from collections.abc import Iterator

from lightning.pytorch import LightningModule
from torch import Tensor
from torchmetrics import Metric

from playbook.doctor import source
from playbook.doctor.dependence import change
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.record import Op, Record, tensors
from playbook.doctor.steps import Step
from playbook.doctor.subject import Subject

VALIDATION_CHANGES_MODEL = Defect(
    "validation-changes-model",
    "critical",
    "The model learns from the validation data, and scores depend on how often it was validated.",
    shown_by=Evidence("experiment", "state and outputs were compared before and after a validation step"),
)
DEFECTS = (VALIDATION_CHANGES_MODEL,)
LIGHT = True
_STATISTICS = ("running_mean", "running_var")
_SAME = 1e-6


def validation_state(subject: Subject) -> Iterator[Finding | str]:
    """Compares weights, statistics of norms and other saved buffers before and after a validation step.

    Weights and statistics must stay. Another buffer may change (a best score, a counter) as long as a second
    validation of the same batch gives the same outputs. Metrics keep their states for themselves.
    """
    if not subject.validates:
        return
    before = {name: value.detach().clone() for name, value in _saved(subject.model).items()}
    step = _validated(subject)
    if step.error is not None:  # another probe tells
        return
    after = _saved(subject.model)
    changed = [name for name, value in before.items() if name in after and not after[name].equal(value)]
    own = {name for name, _ in subject.model.named_parameters()}
    certain = [name for name in changed if name in own or name.rpartition(".")[2] in _STATISTICS]
    if certain or (changed and _differ(step.record, _validated(subject).record)):
        names = certain or changed
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield Finding(
            VALIDATION_CHANGES_MODEL,
            _place(subject.model, step.record, names[0], after[names[0]]),
            f"one validation step changes {names[0]}{more}",
            "if self.training: …  # around what updates it",
        )
        return
    yield "validation leaves weights and statistics as they are"


def _validated(subject: Subject) -> Step:
    with subject.evaluating():
        return subject.record(subject.val_batches[0], training=False)


def _saved(model: LightningModule) -> dict[str, Tensor]:
    """Floating-point tensors of the model's state, except those of metrics."""
    metrics = [name for name, part in model.named_modules() if isinstance(part, Metric)]
    state = model.state_dict(keep_vars=True)
    return {
        name: value
        for name, value in state.items()
        if value.is_floating_point() and not any(name.startswith(f"{metric}.") for metric in metrics)
    }


def _differ(first: Record, second: Record) -> bool:
    """Whether what modules gave to the step is not the same in two records of it."""
    pairs = zip(first.calls, second.calls, strict=False)
    outputs = [pair for one, other in pairs for pair in zip(tensors(one[2]), tensors(other[2]), strict=False)]
    return any(a.shape == b.shape and a.numel() and float(change(a, b).max()) > _SAME for a, b in outputs)


def _place(model: LightningModule, record: Record, name: str, value: Tensor) -> Place | None:
    """The call that wrote a tensor: of an optimizer, in place, or of a norm that something put into training mode."""
    path, _, attribute = name.rpartition(".")
    part = model.get_submodule(path)
    if attribute in _STATISTICS and part.training:
        classes = source.classes_in(model)
        if (switch := source.first_call([type(model).validation_step, *classes], "train")) is not None:
            return switch
    writers = [op for op in record.ops if _writes(op) and any(leaf is value for leaf in op.inputs)]
    if writers:
        return writers[-1].place
    assigned = source.assigned(part, attribute)
    return assigned[-1][0] if assigned else source.definition(type(model).validation_step)


def _writes(op: Op) -> bool:
    in_place = op.name.endswith("_") and not op.name.endswith("__")
    return in_place or op.name.strip("_") in ("setitem", "iadd", "isub", "imul", "itruediv", "batch_norm")
