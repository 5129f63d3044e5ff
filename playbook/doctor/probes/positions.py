"""Tables of positions of which one row is added at all positions."""

from collections.abc import Iterator

from torch import Tensor

from playbook.doctor.findings import Defect, Finding
from playbook.doctor.losses import SHAPE_ONLY
from playbook.doctor.record import Record
from playbook.doctor.subject import Subject

SAME_POSITION = Defect("same-position", "critical", "The model cannot tell the order of its inputs by their positions.")
LIGHT = True
_SUMS = ("add", "radd", "iadd")
_SHAPES = SHAPE_ONLY - {"__getitem__"}


def positions(subject: Subject) -> Iterator[Finding | str]:
    """Looks for sums of a sequence (B, T, D) with the row at T of a table: `table[:, x.size(1)]`, without a colon."""
    record = subject.attempt().record
    for op in record.ops:
        if op.name.strip("_") not in _SUMS or len(op.inputs) != 2:
            continue
        for x, row in (op.inputs, op.inputs[::-1]):
            if x.dim() == 3 and x.shape[1] > 1 and row.numel() == x.shape[2] and _is_row(record, row, x.shape[1]):
                message = f"the vector at {x.shape[1]} of a table is added at all {x.shape[1]} positions"
                yield Finding(SAME_POSITION, op.place, message, "x = x + table[:, : x.size(1)]")
                return


def _is_row(record: Record, vector: Tensor, number: int) -> bool:
    """Whether a vector is the row of this number of a table with more rows."""
    maker = record.producer(vector, _SHAPES)
    if maker is None or maker.name != "__getitem__" or not maker.inputs:
        return False
    index = maker.args[1] if isinstance(maker.args[1], tuple) else (maker.args[1],)
    rows = [axis for axis, part in enumerate(index) if type(part) is int and part == number]
    table = maker.inputs[0]
    return any(table.dim() > axis + 1 and table.shape[axis] > number for axis in rows)
