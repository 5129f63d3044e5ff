"""Self-attention and recurrent networks over sequences of one element."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from torchdoctor.evidence.softmax import Softmax
from torchdoctor.findings import Defect, Finding, NotLookedAt, Place
from torchdoctor.probe import Probe
from torchdoctor.running.batches import num_samples
from torchdoctor.running.record import RECURRENT, Op, tensors
from torchdoctor.running.steps import Step
from torchdoctor.running.subject import Subject

SINGLE_TOKEN_ATTENTION = Defect(
    "single-token-attention",
    "warning",
    "Queries and keys learn nothing: the only weight is 1, and the layer is a linear one.",
)
SINGLE_STEP_RECURRENCE = Defect(
    "single-step-recurrence",
    "warning",
    "Nothing recurs: the weights from state to state, a large part of the layer, get no gradient.",
)
_AXES = {"scaled_dot_product_attention": -2, "multi_head_attention_forward": 0}  # of time, in query and key
_CELLS = ("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
_FIX = "# a sequence (B, T, D) of several elements and batch_first=True, or nn.Linear in place of"


def single_token(subject: Subject) -> Iterator[Finding | str | NotLookedAt]:
    """Looks at the steps on all first batches for sequences of one element in layers that relate elements.

    A sequence gets the length 1 from `x.unsqueeze(1)`, or from samples in the place of the sequence where a layer does
    not have `batch_first=True`, or from cells that are called again and again without their last state. Left alone are
    cross-attention to one element, as a class or a text, and a recurrent layer that goes on from a state.
    """
    places: dict[tuple[Defect, str, Place | None], set[bool]] = defaultdict(set)
    for step in subject.steps():
        for op in step.record.ops:
            if op.grad and (is_single := _is_single(step, op)) is not None:
                defect = SINGLE_STEP_RECURRENCE if op.name in (*RECURRENT, *_CELLS) else SINGLE_TOKEN_ATTENTION
                what = "attention" if defect is SINGLE_TOKEN_ATTENTION else "the recurrent layer"
                places[defect, "a cell" if op.name in _CELLS else what, op.place].add(is_single)
    is_fine = True
    for (defect, what, place), are_single in places.items():
        if all(are_single):
            is_fine = False
            message, fix = f"{what} over sequences of one element", f"{_FIX} {what}"
            if what == "a cell":
                message, fix = "a cell that begins without a state at each element", "h, c = self.cell(x, (h, c))"
            yield Finding(defect, place, f"{message} in each of {len(subject.batches)} steps", fix)
    if any(_may_be_samples(step, op) for step in subject.steps() for op in step.record.named(*RECURRENT)):
        yield NotLookedAt(SINGLE_STEP_RECURRENCE, "a recurrent layer gets samples, or as many elements, for its time")
    elif places and is_fine:
        yield "attention and recurrent layers get sequences of several elements"


PROBE = Probe(look=single_token, defects=(SINGLE_TOKEN_ATTENTION, SINGLE_STEP_RECURRENCE), is_light=True)


def _may_be_samples(step: Step, op: Op) -> bool:
    """Whether the time of a recurrent layer is as long as the batch, and its batch is not."""
    sequence = op.args[0] if len(op.args) == 9 else None
    if not isinstance(sequence, Tensor) or sequence.dim() != 3:
        return False
    time, batch = (1, 0) if op.args[8] else (0, 1)
    return sequence.shape[time] == num_samples(step.batch) != sequence.shape[batch]


def _is_single(step: Step, op: Op) -> bool | None:
    """Whether a layer gets sequences of one element; None for a call of another kind."""
    if op.name in _AXES:
        sequences: list[Any] = [op.argument(number, name) for number, name in enumerate(("query", "key"))]
        if all(isinstance(item, Tensor) and item.dim() > 1 for item in sequences):
            return all(item.shape[_AXES[op.name]] == 1 for item in sequences)
    if op.name == "softmax" and op.direct and isinstance(op.out, Tensor) and op.out.requires_grad:
        softmax = Softmax(step, op)
        axis, (*_, queries, keys) = softmax.axis, (1, 1, *softmax.shape)
        is_single = softmax.shape[axis : axis + 1] == (1,)
        is_of_others = len(softmax.shape) > 2 and queries > 1 == keys  # several queries of one key
        return is_single if softmax.sums and not (is_single and is_of_others) else None  # with sums, it weighs values
    if op.name in RECURRENT and len(op.args) == 9:  # packed ones have other arguments
        sequence: Any = op.args[0]
        return sequence.shape[int(bool(op.args[8]))] == 1 and not any(state.any() for state in tensors(op.args[1]))
    if op.name in _CELLS and sum(other.place == op.place for other in step.record.named(op.name)) > 1:
        return not any(state.any() for state in tensors(op.args[1]))
    return None
