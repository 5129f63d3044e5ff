"""Modules in evaluation mode during training."""

from collections.abc import Iterator
from contextlib import suppress

from torch import nn

from torchdoctor import source
from torchdoctor.evidence import origins
from torchdoctor.evidence.evaluation import is_trained_and_mode_dependent
from torchdoctor.findings import TRAINING, Defect, Finding, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running.subject import Subject
from torchdoctor.running.training import trained_weights

STUCK_IN_EVAL = Defect(
    "stuck-in-eval",
    "critical",
    "Dropout is off and batch norms keep their first statistics while the weights change.",
    shown_by=TRAINING,
)
_INTENT = ("train", "on_fit_start", "on_train_start", "on_train_epoch_start", "on_train_batch_start", "setup")


def modes(subject: Subject) -> Iterator[Finding | str]:
    """Checks the modes at the first training batch, which Lightning leaves as they are.

    Reported are trainable parts in evaluation mode that hold something which the mode changes. Frozen parts are right
    in evaluation mode, as are those that a step uses without teaching them, and what the module puts there on purpose,
    in `train()` or a hook of the training. A step must leave the modes as it found them: the next one runs with them.
    """
    before = {part for part in subject.model.modules() if part.training}
    if subject.record(subject.batches[0]).error is None:  # if there is one, another probe tells
        parts = [part for part in before if not part.training and is_trained_and_mode_dependent(part)]
        if parts:
            message = f"a training step leaves {len(parts)} trainable parts in evaluation mode: the next ones run in it"
            fix = "self.train()  # after what needed evaluation mode, or self.ema = a copy that stays in it"
            place = source.first_call([type(subject.model).training_step], "eval") or _call(subject)
            yield Finding(STUCK_IN_EVAL, place, message, fix)
            return
    stuck = [
        (name, part)
        for name, part in subject.model.named_modules()
        if part not in before and is_trained_and_mode_dependent(part)
    ]
    trained = trained_weights(subject)  # a copy that is averaged is not
    stuck = [(name, part) for name, part in stuck if not trained.isdisjoint(map(id, part.parameters()))]
    stuck = [(name, part) for name, part in stuck if not _is_only_used(subject, part)] if stuck else []
    names = [name for name, _ in stuck]
    outermost = [name for name in names if not any(f"{name}.".startswith(f"{n}.") or not n for n in names if n != name)]
    if not stuck or _is_meant(subject):
        yield "trainable parts are in training mode"
        return
    where = ", ".join(outermost[:3]) or "the module"
    message = f"{where}: in evaluation mode at the first training step, with trainable weights"
    called = _call(subject)
    if called is None:
        message += "; libraries load pretrained networks so"
    name = f"self.{outermost[0]}".rstrip(".")
    fix, values = f"{name}.train()", {}
    if called:
        fix, values = "# leave out .eval(), or freeze: .requires_grad_(False)", {"variant": "leave out"}
    yield Finding(STUCK_IN_EVAL, called or origins.layer(subject.model, stuck[0][1]), message, fix, values)


PROBE = Probe(
    look=modes,
    defects=(STUCK_IN_EVAL,),
    needs=(Need.LIGHTNING,),
    by_rehearsal=(STUCK_IN_EVAL,),
    is_light=True,
    at_start=True,
)


def _is_only_used(subject: Subject, part: nn.Module) -> bool:
    """Whether a step gives none of a part's weights a gradient: it is a teacher, or another defect."""
    with suppress(Exception):  # another probe tells
        subject.backward(subject.batches[0])
        return all(weight.grad is None for weight in part.parameters())
    return False


def _is_meant(subject: Subject) -> bool:
    """Whether train() or a hook of the training calls eval()."""
    hooks = [vars(cls).get(name) for cls in source.classes_in(subject.model) for name in _INTENT]
    return source.first_call(filter(callable, hooks), "eval") is not None


def _call(subject: Subject) -> Place | None:
    """The first call of `eval` in the model's classes, or in their files."""
    classes = source.classes_in(subject.model)
    return source.first_call(classes, "eval") or source.call_beside(classes, "eval")
