"""Whether the program runs at all."""

from collections.abc import Iterator

from playbook.doctor import source
from playbook.doctor.findings import RUN, Defect, Finding
from playbook.doctor.subject import Subject, Watch

CRASH = Defect(
    "crash",
    "critical",
    "The program ends with an error.",
    shown_by=RUN,
)
DEFECTS = (CRASH,)
WATCH = Watch


def run(subject: Subject) -> Iterator[Finding | str]:
    """Trains and validates two short epochs with Lightning's Trainer, hooks and all."""
    loss = subject.attempt().loss
    if loss is not None and not loss.requires_grad:  # which gradient_reach tells
        return
    try:
        subject.watch(Watch)
    except Exception as error:  # whatever the program raises is the finding
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        yield Finding(CRASH, source.raised_at(error), text, "")
        return
    yield "training and validation run through"
