"""Validation that changes the model it measures."""

import ast
from collections.abc import Iterator
from contextlib import suppress

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torchmetrics import Metric

from torchdoctor import source
from torchdoctor.evidence.dependence import relative_change
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.record import Op, Record, tensors
from torchdoctor.running.steps import Step
from torchdoctor.running.subject import Subject
from torchdoctor.running.training import train

VALIDATION_CHANGES_MODEL = Defect(
    "validation-changes-model",
    "critical",
    "The model learns from the validation data, and scores depend on how often it was validated.",
    shown_by=Evidence("experiment", "state and outputs were compared before and after a validation step"),
)
_STATISTICS = ("running_mean", "running_var")
_STEPS, _LIMIT_S = 3, 2.0  # of training
_WRITING = ("setitem", "iadd", "isub", "imul", "itruediv", "batch_norm")


def validation_state(subject: Subject, tolerance: float = 1e-6) -> Iterator[Finding | str]:
    """Compares weights, statistics of norms and other saved buffers before and after a validation step.

    A few steps of training come first, as a moving average equals its weights before. Then statistics must stay as a
    step without its optimizer leaves them, and weights as well, unless the loss of that step stays as it was: every
    forward pass may write a mask into weights, shorten rows of an embedding, or compute signs from other weights.
    Another buffer may change (a best score, a counter) as long as a second validation of the same batch gives the same
    outputs. Metrics keep their states for themselves.

    Args:
        subject: the training that has just begun.
        tolerance: relative change that counts as none.
    """
    if not subject.validates:
        return
    model = subject.model
    with suppress(Exception):  # another probe tells
        train(subject, _STEPS, _LIMIT_S)
    loss = _training_loss(subject)
    before = {name: value.detach().clone() for name, value in _saved(model).items()}
    step = _after_validation(subject)
    if step.error is not None:  # another probe tells
        return
    after = _saved(model)
    changed = [name for name, value in before.items() if name in after and _is_other(value, after[name], tolerance)]
    certain = [name for name in changed if name.endswith(_STATISTICS)]
    weights = [name for name in changed if isinstance(after[name], nn.Parameter)]
    if weights and not _is_same(loss, _training_loss(subject), tolerance):
        certain += weights
    changed = [name for name in changed if name not in weights]
    if certain or (changed and _differ(step.record, _after_validation(subject).record, tolerance)):
        names = certain or changed
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        place = _place(model, step.record, names[0], after[names[0]])
        message = f"one validation step changes {names[0]}{more}"
        yield Finding(VALIDATION_CHANGES_MODEL, place, message, "if self.training: …  # around what updates it")
        return
    yield "validation leaves weights and statistics as they are"


PROBE = Probe(look=validation_state, defects=(VALIDATION_CHANGES_MODEL,))


def _training_loss(subject: Subject) -> Tensor | None:
    with subject.not_optimized():
        return subject.record(subject.batches[0]).loss


def _is_same(before: Tensor | None, after: Tensor | None, tolerance: float) -> bool:
    return before is not None and after is not None and torch.allclose(before, after, rtol=tolerance, atol=0)


def _after_validation(subject: Subject) -> Step:
    with subject.evaluating():
        return subject.record(subject.val_batches[0], training=False)


def _saved(model: LightningModule) -> dict[str, Tensor]:
    """Floating-point tensors of the model's state, except those of metrics."""
    metrics = tuple(f"{name}." for name, part in model.named_modules() if isinstance(part, Metric))
    state = model.state_dict(keep_vars=True).items()
    return {name: value for name, value in state if value.is_floating_point() and not name.startswith(metrics)}


def _is_other(before: Tensor, after: Tensor, tolerance: float) -> bool:
    """Whether a tensor changes by more than rounding: weights may be normalised again and again."""
    return before.shape != after.shape or not torch.allclose(before, after, rtol=tolerance, atol=0, equal_nan=True)


def _differ(first: Record, second: Record, tolerance: float) -> bool:
    """Whether what modules gave to the step is not the same in two records of it."""
    pairs = zip(tensors([call[2] for call in first.calls]), tensors([call[2] for call in second.calls]), strict=False)
    return any(a.shape == b.shape and a.numel() and float(relative_change(a, b).max()) > tolerance for a, b in pairs)


def _place(model: LightningModule, record: Record, name: str, value: Tensor) -> Place | None:
    """The call that wrote a tensor: of an optimizer, in place, or of a norm that something put into training mode."""
    path, _, attribute = name.rpartition(".")
    part, step = model.get_submodule(path), type(model).validation_step
    if attribute in _STATISTICS and part.training:
        switch = source.first_call([step, *source.classes_in(model)], "train")
        if switch is not None:
            return switch
    writers = [op.place for op in record.takers(value) if _writes(op)]
    writers = (
        writers or _reassigned_data_lines(model, record) or [place for place, _ in source.assigned(part, attribute)]
    )
    return writers[-1] if writers else source.definition(step)


def _reassigned_data_lines(model: LightningModule, record: Record) -> list[Place]:
    """The lines of a step that give a tensor other data: `weight.data = …`."""
    run = {place for op in record.ops for place in op.places}
    return [
        place
        for place, node in source.statements(*source.classes_in(model))
        if place in run and isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith(".data")
    ]


def _writes(op: Op) -> bool:
    return (op.name.endswith("_") and not op.name.endswith("__")) or op.name.strip("_") in _WRITING
