"""Losses that are not scalars."""

from collections.abc import Iterator

from torchdoctor import source
from torchdoctor.findings import Defect, Finding
from torchdoctor.probe import Need, Probe
from torchdoctor.running.subject import Subject

NON_SCALAR_LOSS = Defect("non-scalar-loss", "critical", "Backward ends with an error.", explains=("crash",))


def scalar_loss(subject: Subject) -> Iterator[Finding | str]:
    """Runs a training step and looks at the shape of what it returns: backward begins at one number."""
    by_trainer = subject.model.automatic_optimization
    step = subject.step() if by_trainer else subject.backward(subject.batches[0])
    if (loss := step.loss) is None:
        return
    if loss.numel() == 1:
        yield "the loss is one number"
        return
    maker = step.record.producer(loss)
    place = (maker.place if maker else None) or source.definition(type(subject.model).training_step)
    yield Finding(
        NON_SCALAR_LOSS, place, f"training_step returns a loss of shape {tuple(loss.shape)}", "loss = loss.mean()"
    )


PROBE = Probe(look=scalar_loss, defects=(NON_SCALAR_LOSS,), needs=(Need.LIGHTNING,), is_light=True)
