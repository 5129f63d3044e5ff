"""Errors during a short training."""

from collections.abc import Iterator
from contextlib import nullcontext
from traceback import walk_tb

from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader

from torchdoctor import source
from torchdoctor.evidence.explanation import cause_line, with_explanation
from torchdoctor.evidence.failure import CRASH
from torchdoctor.evidence.samples import dataset_size, train_loaders, without_workers
from torchdoctor.findings import Finding, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running.rehearsal import Watch, rehearsal_notes
from torchdoctor.running.subject import Subject
from torchdoctor.running.transfer import apply_transfer_hooks


def run(subject: Subject) -> Iterator[Finding | str]:
    """Trains and validates two short epochs with Lightning's Trainer, hooks and all, and runs an epoch's last batch.

    An error is the last batch's own, which has fewer samples, only if a whole batch runs.
    """
    loss = subject.attempt().loss
    if loss is not None and not loss.requires_grad:  # which gradient_reach tells
        return
    try:
        rehearsal_notes(subject, Watch)
    except Exception as error:  # whatever the program raises is the finding
        place = source.raised_at(error) or _logged_at(subject, error) or cause_line(error)
        yield Finding(CRASH, place, *with_explanation(error, _text(error)))
        return
    if (failure := _failure_at_end(subject)) is not None:
        number, error = failure
        text = f"on the last batch of an epoch, of size {number}: {_text(error)}"
        fix = "# take the batch's size from the batch itself: len(x)"
        yield Finding(CRASH, source.raised_at(error), *with_explanation(error, text, fix))
        return
    yield "training and validation run through"


PROBE = Probe(look=run, defects=(CRASH,), needs=(Need.LIGHTNING,), watch=Watch)


def _logged_at(subject: Subject, error: Exception) -> Place | None:
    """The line that logs several values as one metric, of which Lightning tells at the end of an epoch alone."""
    scopes = [frame.f_locals.get("metrics") for frame, _ in walk_tb(error.__traceback__)]
    metrics = [item for scope in scopes if isinstance(scope, dict) for item in scope.items()]
    names = {name for name, value in metrics if isinstance(value, Tensor) and value.numel() > 1}
    calls = [(file, call) for file in subject.files for call in source.calls(source.tree(file), "log")]
    log_calls = [(file, call) for file, call in calls if call.args and getattr(call.args[0], "value", None) in names]
    return next((Place(file, call.lineno) for file, call in log_calls), None) if names else None


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _failure_at_end(subject: Subject) -> tuple[int, Exception] | None:
    """The number of samples and the error of an epoch's last batch, if that is a short one and alone raises."""
    loaders = [(loader, True) for loader in train_loaders(subject)[:1]]
    loaders += [(loader, False) for loader in subject.loaders("val")[:1] if subject.validates]
    for loader, training in loaders:
        if (indices := _short_end(loader)) is None:
            continue
        vars(without_workers(loader))["batch_sampler"] = [indices]  # loaders of the user's may iterate in their own way
        batch = next(iter(loader))
        arrived = apply_transfer_hooks(subject.trainer, batch) if training else subject.transferred(batch)
        if subject.attempt(training=training).error is not None:
            continue
        with subject.unchanged(), nullcontext() if training else subject.evaluating():
            error = subject.record(arrived, training).error
        if error is not None:
            return len(indices), error
    return None


def _short_end(loader: DataLoader) -> list[int] | None:
    """The indices of an epoch's last batch, if torch's own batches end with fewer samples than the others have."""
    if type(loader.batch_sampler) is not BatchSampler or loader.drop_last or dataset_size(loader.dataset) is None:
        return None
    *others, last = loader.batch_sampler
    return last if others and len(last) < len(others[0]) else None
