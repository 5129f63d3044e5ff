"""Losses whose prediction and label arguments are swapped."""

from collections.abc import Iterator

from torch import Tensor

from torchdoctor.findings import Defect, Finding
from torchdoctor.probe import Probe
from torchdoctor.running.losses import BINARY, CLASSES
from torchdoctor.running.subject import Subject

SWAPPED_LOSS_ARGUMENTS = Defect(
    "swapped-loss-arguments",
    "critical",
    "The loss takes predictions for labels, and its gradient leads elsewhere.",
    explains=("loss-not-decreasing", "bad-initial-loss", "label-out-of-range"),
)


def swapped_arguments(subject: Subject) -> Iterator[Finding | str]:
    """Looks for cross-entropies whose first argument has no gradient while the second has one.

    These losses are not symmetric: input comes first, target second. A divergence in that order is a choice.
    """
    losses = list(subject.step().record.named(*CLASSES, *BINARY))
    for op in losses:
        prediction, target = op.argument(0, "input"), op.argument(1, "target")
        if isinstance(target, Tensor) and target.requires_grad and not prediction.requires_grad:
            message = f"the first argument of {op.name} has no gradient, the second comes from the model"
            yield Finding(SWAPPED_LOSS_ARGUMENTS, op.place, message, f"F.{op.name}(predictions, labels)")
            return
    if losses:
        yield "losses get predictions first and labels second"


PROBE = Probe(look=swapped_arguments, defects=(SWAPPED_LOSS_ARGUMENTS,), is_light=True)
