"""The callbacks that accompany every training, in their order around those of the user."""

from typing import Any

from lightning.pytorch.callbacks import ProgressBar

from playbook.training.facts import KeepFacts
from playbook.training.frequencies import CheckFrequencies
from playbook.training.microbatches import MicroBatches
from playbook.training.monitors import CheckMonitors
from playbook.training.nonfinite.callback import NonFinite
from playbook.training.progress import Progress
from playbook.training.record import Record
from playbook.training.resume.changes import Changes
from playbook.training.resume.checkpoint import Checkpoint
from playbook.training.resume.exact import ExactResume
from playbook.training.resume.signals import StopOnSignal
from playbook.training.returned import CheckLoss
from playbook.training.throughput import Throughput


def arrange_callbacks(
    user_callbacks: list[Any],
    keep_facts: KeepFacts,
    checkpoint: Checkpoint,
    record: Record | None,
    saves: bool,
    shows_progress: bool,
) -> list[Any]:
    """All callbacks of a Trainer: ours that reset randomness come before the user's, Lightning puts checkpoints last.

    Args:
        user_callbacks: those of the user; NonFinite and a progress bar among them take the place of ours.
        keep_facts: passes facts between data, model and checkpoints.
        checkpoint: saves best.ckpt and last.ckpt.
        record: writes the run's own files; None without a run directory.
        saves: whether there are checkpoints.
        shows_progress: whether there is a progress bar.
    """
    first = [keep_facts, ExactResume(checkpoint), Changes(), MicroBatches()]
    callbacks: list[Any] = [*first, CheckMonitors(), CheckLoss(), *user_callbacks, CheckFrequencies()]
    callbacks.append(Throughput())
    if not any(isinstance(callback, NonFinite) for callback in callbacks):
        callbacks.append(NonFinite())
    if shows_progress and not any(isinstance(callback, ProgressBar) for callback in callbacks):
        callbacks.append(Progress())
    if record is not None:
        callbacks += [record, StopOnSignal(checkpoint)]
    if saves:
        callbacks.append(checkpoint)
    return callbacks
