"""Shrinks batches and sequences where a training step is slow."""

import time
from collections.abc import Callable
from typing import Any

from torchdoctor.running import sandbox
from torchdoctor.running.batches import first_positions, first_samples, modifies_batch
from torchdoctor.running.record import tensors
from torchdoctor.running.subject import LONG_S, LONGEST_S, Subject

_LEAST = 4  # samples
_SLOW_S, _POSITIONS = 3.0, 64  # a step that takes this long gets shorter sequences as well


def shorten(subject: Subject) -> None:
    """Keeps fewer samples of each batch, and shorter sequences, if a full step takes long."""
    try:
        subject.seconds, subject.consumes = sandbox.call(lambda: _first_step(subject), LONGEST_S)
    except sandbox.SandboxError as error:  # if it raises, a probe will tell
        subject.seconds = LONGEST_S if "took more" in str(error) else 0.0
    if not subject.is_slow:
        return
    size = max([len(leaf) for leaf in tensors(subject.batches[0]) if leaf.dim()], default=0)
    number = max(_LEAST, int(size * LONG_S / subject.seconds))
    if _cut(subject, lambda batch: first_samples(batch, number)):
        subject.samples = number
    if subject.seconds > _SLOW_S and _cut(subject, lambda batch: first_positions(batch, _POSITIONS)):
        subject.positions = _POSITIONS


def _first_step(subject: Subject) -> tuple[float, bool]:
    """Times a training step, and notes whether it or a validation step modifies its batch."""
    start = time.process_time()  # other work on the machine does not count
    consumes = modifies_batch(subject.batches[0], subject.train)
    seconds = time.process_time() - start
    if subject.validates and not consumes and seconds < _SLOW_S:
        with subject.evaluating():
            consumes = modifies_batch(subject.val_batches[0], subject.validate)
    return seconds, consumes


def _cut(subject: Subject, cut: Callable[[Any], Any]) -> bool:
    """Cuts all batches if a step runs on the result; returns whether it did."""
    number = len(subject.batches)
    shorter = [cut(batch) for batch in (*subject.batches, *subject.val_batches)]
    is_possible = all(batch is not None for batch in shorter) and _trains_on(subject, shorter[:number][:2])
    if is_possible:
        subject.batches, subject.val_batches = shorter[:number], shorter[number:]
    return is_possible


def _trains_on(subject: Subject, batches: list[Any]) -> bool:
    """Whether steps run on these batches in sequence: a step may keep state of the loader's batch size."""

    def run() -> bool:
        for number, batch in enumerate(batches):
            loss = subject.train(batch, number)
            if subject.model.automatic_optimization and loss is not None:
                loss.backward()
        return True

    return sandbox.attempt(run, 2 * LONGEST_S, False)
