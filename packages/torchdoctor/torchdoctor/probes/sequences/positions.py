"""Position tables of which one row is added at all positions."""

from collections.abc import Iterator

from torch import Tensor

from torchdoctor.findings import Defect, Evidence, Finding
from torchdoctor.probe import Probe
from torchdoctor.running.batches import first_samples, num_samples
from torchdoctor.running.losses import SHAPE_ONLY
from torchdoctor.running.record import Op, Record
from torchdoctor.running.subject import Subject

SAME_POSITION = Defect(
    "same-position",
    "critical",
    "The model cannot tell the order of its inputs by their positions.",
    shown_by=Evidence("experiment", "a step was recorded, with all samples of a batch and without the last"),
)
_SUMS = ("add", "radd", "iadd")
_SHAPES = SHAPE_ONLY - {"__getitem__"}


def positions(subject: Subject) -> Iterator[Finding | str]:
    """Looks for sums of a sequence (B, T, D) with rows of a table that are the same at all T.

    That is the row at T, as in `table[:, x.size(1)]` without a colon, or one for each sample, as in
    `table[: x.size(0)]` of a table (N, 1, D): as many as the batch has samples, also when that has one less.
    """
    step = subject.attempt()
    for op, x, rows in _sums(step.record):
        if rows.numel() == x.shape[2] and _is_row(step.record, rows, x.shape[1]):
            message = f"the vector at {x.shape[1]} of a table is added at all {x.shape[1]} positions"
            yield Finding(SAME_POSITION, op.place, message, "x = x + table[:, : x.size(1)]")
            return
    size, shorter = num_samples(step.batch), None
    for op, x, rows in _sums(step.record):
        if size is None or not _is_by_sample(step.record, x, rows, size):
            continue
        shorter = shorter or subject.record(first_samples(step.batch, size - 1)).record
        again = [(x, rows) for other, x, rows in _sums(shorter) if other.place == op.place]
        if any(_is_by_sample(shorter, x, rows, size - 1) for x, rows in again):
            message = f"row b of a table is added at all {x.shape[1]} positions of sample b: x is {tuple(x.shape)}"
            yield Finding(SAME_POSITION, op.place, message, "x = x + table[: x.size(1)].transpose(0, 1)")
            return


PROBE = Probe(look=positions, defects=(SAME_POSITION,), is_light=True)


def _sums(record: Record) -> Iterator[tuple[Op, Tensor, Tensor]]:
    """Sums of a sequence (B, T, D) of several positions and another tensor."""
    for op in record.ops:
        if op.name.strip("_") in _SUMS and len(op.inputs) == 2:
            pairs = (op.inputs, op.inputs[::-1])
            yield from ((op, x, rows) for x, rows in pairs if x.dim() == 3 and x.shape[1] > 1)


def _is_row(record: Record, vector: Tensor, number: int) -> bool:
    """Whether a vector is the row of this number of a table with more rows."""
    maker = record.producer(vector, _SHAPES)
    if maker is None or maker.name != "__getitem__" or not maker.inputs:
        return False
    index = maker.args[1] if isinstance(maker.args[1], tuple) else (maker.args[1],)
    rows = [axis for axis, part in enumerate(index) if type(part) is int and part == number]
    table = maker.inputs[0]
    return any(table.dim() > axis + 1 and table.shape[axis] > number for axis in rows)


def _is_by_sample(record: Record, x: Tensor, rows: Tensor, size: int) -> bool:
    """Whether x has so many samples, and these rows are one for each, the first of a longer table of constants."""
    table = record.origin(rows, SHAPE_ONLY)
    is_constant = not table.requires_grad and record.producer(table) is None
    is_one_each = rows.shape == (size, 1, x.shape[2]) and len(x) == size > 1 and x.requires_grad
    return is_one_each and is_constant and table.dim() > 1 and size < max(table.shape[:2])
