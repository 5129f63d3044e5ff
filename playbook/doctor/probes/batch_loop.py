"""Python loops over the samples of a batch."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

from playbook.doctor import source
from playbook.doctor.batches import first, num_samples
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.record import Record
from playbook.doctor.subject import Subject
from playbook.doctor.turns import Span, count_turns, turning_point

PYTHON_LOOP_OVER_BATCH = Defect(
    "python-loop-over-batch",
    "warning",
    "The time grows with the batch, and an accelerator waits for Python.",
    section="Performance",
    shown_by=Evidence("experiment", "a step was run on a batch and on half of it, loops were counted"),
)
DEFECTS = (PYTHON_LOOP_OVER_BATCH,)
LIGHT = True

_MAPS = ("map", "starmap")
_READS = ("item", "tolist", "numpy", "cpu", "__array__")  # for what is computed by another library


def batch_loop(subject: Subject) -> Iterator[Finding | str]:
    """Runs a training step on B and on B/2 samples, and counts the turns of every loop of the user's.

    A loop that turns B and B/2 times goes over the batch; if each turn does the same computation on the same shapes,
    one call could do them all. Where shapes differ from sample to sample, or values go to another
    library, it is left alone.
    """
    batch = subject.batches[0]
    size = num_samples(batch)
    given = getattr(subject.trainer.train_dataloader, "batch_size", None)
    if size is None or size < 4 or given not in (None, size, subject.samples and given):
        return
    half = size // 2
    if not (whole := _turns(subject, batch, size)):
        yield "no Python loop goes over the batch"
        return
    if not subject.takes(first(batch, half)):
        return
    part = _turns(subject, first(batch, half), half)
    loops = [loop for loop in whole if whole[loop] * half == part.get(loop, 0) * size]
    loops = [loop for loop in loops if not any(_within(loop, other) for other in loops)]
    shapes, total = _shapes(subject, batch, loops)
    for loop in loops:
        file, line, _, target = loop
        if not shapes[loop]:
            continue
        message = f"this loop turns {whole[loop]} times for {size} samples, {part[loop]} times for {half}: "
        fewer = total / (total - shapes[loop] + shapes[loop] / size)
        message += f"{shapes[loop]} calls of torch, which one vectorized call each could make: {fewer:.1f} times fewer "
        message += "calls a step, and as much faster where calls are what it waits for"
        yield Finding(
            PYTHON_LOOP_OVER_BATCH,
            Place(file, line),
            message,
            f"# without `for {target}`: call it once on the whole batch",
        )
        return
    yield "no Python loop goes over the batch"


Loop = tuple[str, int, int, str]  # file, first line, last line, what follows `for`


def _turns(subject: Subject, batch: Any, size: int) -> dict[Loop, int]:
    """Loops that turn a multiple of B times in a step, and how often."""
    torch.manual_seed(0)
    with Record() as record:
        turns = count_turns(lambda: subject.train(batch), _loops)
    files = {file for file, _ in turns} | {place.file for op in record.ops for place in op.places}
    counts: dict[Loop, int] = {}
    for file in files:
        for node in (node for node in ast.walk(source.tree(file)) if isinstance(node, ast.expr | ast.stmt)):
            for count, text in _counted(node, file, turns, record, size):
                if count >= size and count % size == 0:
                    counts[file, node.lineno, node.end_lineno or node.lineno, text] = count
                    break
    return counts


@cache
def _loops(file: str) -> list[ast.For | ast.While | ast.comprehension]:
    """Loops in a file of the user's."""
    nodes = ast.walk(source.tree(file)) if source.is_user(file) else ()
    return [node for node in nodes if isinstance(node, ast.For | ast.While | ast.comprehension)]


def _counted(
    node: ast.expr | ast.stmt, file: str, turns: Counter[tuple[str, Span]], record: Record, size: int
) -> Iterator[tuple[int, str]]:
    """How often what a syntax node loops over turned, and how it reads; from the outside in for a comprehension."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _MAPS:
        yield _mapped(record, file, node, size), f"_ in {ast.unparse(node.func)}"
    loops = [node] if isinstance(node, ast.For | ast.While) else getattr(node, "generators", [])
    for loop in loops:
        if (point := turning_point(loop)) is not None:
            yield turns[file, point], ast.unparse(loop.test if isinstance(loop, ast.While) else loop.target)


def _mapped(record: Record, file: str, node: ast.Call, size: int) -> int:
    """How often a call of map turns, told by the calls of torch in it; 0 if that is no multiple of B."""
    span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
    inside = (op for op in record.ops if any(place.file == file and place.line in span for place in op.places))
    counts = Counter((op.name, op.place) for op in inside).values()
    return min((count for count in counts if count >= size and count % size == 0), default=0)


def _shapes(subject: Subject, batch: Any, loops: list[Loop]) -> tuple[dict[Loop, int], int]:
    """How many calls of torch each loop makes, none if they differ in shape from turn to turn; and the step."""
    torch.manual_seed(0)
    with Record() as record:
        subject.train(batch)
    kinds: dict[Loop, dict[Any, set[Any]]] = {loop: defaultdict(set) for loop in loops}
    counts: Counter[Loop] = Counter()
    read: set[Loop] = set()
    for op in record.ops:
        if op.name in ("__get__", "size", "dim", "__len__", "unbind", "__iter__"):
            continue
        for loop in loops:
            if any(place.file == loop[0] and loop[1] <= place.line <= loop[2] for place in op.places):
                counts[loop] += 1
                read |= {loop} if op.name in _READS else set()
                shapes = [tuple(leaf.shape) for leaf in op.outputs]
                kinds[loop][op.places, op.name, len(shapes)].add(str(shapes))
    same = {loop: loop not in read and all(len(seen) <= 2 for seen in kinds[loop].values()) for loop in loops}
    return {loop: counts[loop] if same[loop] else 0 for loop in loops}, len(record.ops)


def _within(inner: Loop, outer: Loop) -> bool:
    return inner != outer and inner[0] == outer[0] and outer[1] <= inner[1] and inner[2] <= outer[2]
