"""Views that regroup values where dimensions were meant to change places."""

import math
from collections.abc import Iterator, Sequence

from torchdoctor.findings import Defect, Finding
from torchdoctor.probe import Probe
from torchdoctor.running.record import Op
from torchdoctor.running.subject import Subject

REGROUPED_DIMENSIONS = Defect(
    "regrouped-dimensions",
    "warning",
    "Values of several positions stand in one row: what the next layer sees there has no meaning.",
)


def regrouped(subject: Subject) -> Iterator[Finding | str]:
    """Looks for views that move a dimension without moving its values, as x.view(B, C, T) of x (B, T, C) does.

    A view keeps the order of the values. So a dimension keeps its meaning only if as many values stand before it as
    did: the product of the lengths on its left is the same. Only lengths that appear once are compared, and not that
    of the samples, which the replacement of samples tests. Two dimensions T and T + 1 that change places are the shift
    of relative positions (Huang et al. 2018, "Music Transformer"), which is meant so.
    """
    views = [op for op in subject.step().record.named("view", "reshape") if op.direct and op.place and op.inputs]
    if not views:
        return
    for op in views:
        before, after = tuple(op.inputs[0].shape), tuple(op.outputs[0].shape) if op.outputs else ()
        moved = _moved(before, after)
        if moved is not None:
            yield Finding(REGROUPED_DIMENSIONS, op.place, _message(op, before, after, moved), _fix(before, after))
            return
    yield "views and reshapes keep dimensions in their order"


PROBE = Probe(look=regrouped, defects=(REGROUPED_DIMENSIONS,), is_light=True)


def _moved(before: Sequence[int], after: Sequence[int]) -> int | None:
    """The length of a dimension that has another place among the values afterwards."""
    if len(before) < 3 or not all(before) or (sorted(before) == sorted(after) and _is_shift(before, after)):
        return None
    for place, length in enumerate(before):
        is_single = before.count(length) == after.count(length) == 1
        if not place or length == 1 or not is_single:
            continue
        if math.prod(before[:place]) != math.prod(after[: after.index(length)]):
            return length
    return None


def _is_shift(before: Sequence[int], after: Sequence[int]) -> bool:
    changed = [one for one, other in zip(before, after, strict=True) if one != other]
    return len(changed) == 2 and abs(changed[0] - changed[1]) == 1


def _message(op: Op, before: Sequence[int], after: Sequence[int], length: int) -> str:
    return (
        f"{op.name} makes {tuple(after)} of {tuple(before)}: the dimension of length {length} is another one afterwards"
    )


def _fix(before: Sequence[int], after: Sequence[int]) -> str:
    if sorted(before) == sorted(after):
        return f"x.permute({', '.join(str(list(before).index(length)) for length in after)})"
    return "x.view(B, T, heads, -1).transpose(1, 2)  # split a dimension where it stands, then let them change places"
