"""Python loops over the samples of a batch."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from torchdoctor import source
from torchdoctor.findings import Defect, Evidence, Finding, NotLookedAt, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running.batches import first_samples, num_samples
from torchdoctor.running.record import Op
from torchdoctor.running.subject import Subject

PYTHON_LOOP_OVER_BATCH = Defect(
    "python-loop-over-batch",
    "warning",
    "The time grows with the batch, and an accelerator waits for Python.",
    section="Performance",
    shown_by=Evidence("experiment", "a step was run on a batch and on half of it, calls were counted"),
)

_FREE = ("__get__", "size", "dim", "__len__", "__iter__", "unbind", "split", "chunk")  # computes nothing
_READS = ("item", "tolist", "numpy", "cpu", "__array__")  # for what is computed by another library
_NUMBERS = ("__int__", "__float__", "__index__", "__bool__", "__getitem__", "select")  # a loop of these looks up


def batch_loop(subject: Subject, least_gain: float = 1.2) -> Iterator[Finding | str | NotLookedAt]:
    """Runs a training step on B and on B/2 samples, and counts how often each call of torch is made from each line.

    A loop goes over the batch if calls in it are made a multiple of B times and the same multiple of B/2, and none as
    often for both. If they have the same shapes in every turn, one call could do them all. Loops in which shapes differ
    from sample to sample, from which values go to another library, or that only read numbers, are left alone.

    Args:
        subject: the training that has just begun.
        least_gain: times fewer calls, if the loop were one call.
    """
    batch = subject.batches[0]
    size = num_samples(batch)
    loader_size = getattr(subject.trainer.train_dataloader, "batch_size", None)
    if size is None or size < 4 or (subject.samples is None and loader_size not in (None, size)):
        return
    half = size // 2
    whole = _calls(subject, batch)
    if not any(len(ops) % size == 0 for ops in whole.values()):
        yield "no Python loop repeats calls of the same shapes for each sample"
        return
    if not subject.accepts(first_samples(batch, half)):
        yield NotLookedAt(PYTHON_LOOP_OVER_BATCH, "the step takes no half of a batch")
        return
    part = _calls(subject, first_samples(batch, half))
    vectorizable: dict[tuple[str, source.Loop], list[Call]] = {}
    for loop, calls in _by_loop(whole).items():
        grown = [c for c in calls if len(whole[c]) % size == 0 and len(whole[c]) * half == len(part[c]) * size]
        once = 1 if isinstance(loop[1], ast.expr) else 0  # its line may make a call beside it
        is_steady = any(len(whole[call]) == len(part[call]) > once for call in calls)
        computes = any(call[0] not in _NUMBERS for call in grown)
        if computes and not is_steady and all(_is_uniform(call, whole[call]) for call in calls):
            vectorizable[loop] = grown
    if not vectorizable:
        yield "no Python loop repeats calls of the same shapes for each sample"
        return
    (file, loop), grown = max(vectorizable.items(), key=lambda item: sum(len(whole[call]) for call in item[1]))
    turns, number = min(len(whole[call]) for call in grown), sum(len(whole[call]) for call in grown)
    total = sum(map(len, whole.values()))
    gain = total / (total - number + number / size)
    if gain < least_gain:
        yield "no Python loop over the batch makes many of a step's calls"
        return
    message = (
        f"this loop turns {turns} times for {size} samples, {turns * half // size} times for {half}: {number} calls of "
        f"torch, which one vectorized call each could make: {gain:.1f} times fewer "
        "calls a step, and as much faster where calls are what it waits for"
    )
    fix = f"# without `for {source.loop_target(loop)}`: call it once on the whole batch"
    yield Finding(PYTHON_LOOP_OVER_BATCH, Place(file, loop.lineno), message, fix)


PROBE = Probe(
    look=batch_loop,
    defects=(PYTHON_LOOP_OVER_BATCH,),
    needs=(Need.BATCHES, Need.SAMPLES, Need.FEWER_SAMPLES),
    is_light=True,
)


Call = tuple[str, tuple[Place, ...]]  # what is called, from which lines


def _calls(subject: Subject, batch: Any) -> dict[Call, list[Op]]:
    """The calls of the second step, as the first may show more; those from the same lines together."""
    calls: dict[Call, list[Op]] = defaultdict(list)
    for op in subject.record(batch, index=1).checked().record.ops:
        if op.name not in _FREE:
            calls[op.name, op.places].append(op)
    return calls


def _by_loop(calls: Iterable[Call]) -> dict[tuple[str, source.Loop], list[Call]]:
    """The calls inside each loop of the user's, the outermost loops first."""
    inside: dict[tuple[str, source.Loop], list[Call]] = defaultdict(list)
    for call in calls:
        for place in dict.fromkeys(reversed(call[1])):
            for loop in source.loops_around(place):
                inside[place.file, loop].append(call)
    return inside


def _is_uniform(call: Call, ops: list[Op]) -> bool:
    """Whether a call has the same shapes in every turn (a rest may differ), and gives no values to another library."""
    return call[0] not in _READS and len({str([leaf.shape for leaf in op.outputs]) for op in ops}) <= 2
