"""Bidirectional networks of which one direction is unused, or used at one step only."""

from collections.abc import Iterator
from contextlib import suppress

from torch import Tensor, nn

from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Probe
from torchdoctor.running.record import RECURRENT, Op, Record
from torchdoctor.running.subject import Subject

UNREAD_DIRECTION = Defect(
    "unread-direction",
    "warning",
    "Half of the network's work is lost: what is read knows one step of the sequence, or one direction.",
    shown_by=Evidence("measured", "the gradients of both directions were compared"),
)
_PARTS = ("__getitem__", "select", "gather", "take_along_dim")
_ENDS = ("", "_reverse")  # of the names of weights, forwards and backwards
_FIX = "torch.cat([h_n[-2], h_n[-1]], dim=1)  # the last states of both directions"


def directions(subject: Subject) -> Iterator[Finding | str]:
    """Looks for a direction of a last layer whose weights from state to state get no gradient, and the other's do.

    That of `out[:, -1]` has read one step, the last: what has read all of them is at the first one, and in h_n (torch's
    documentation of nn.LSTM, "Outputs"). Nothing reads the forward one of `h_n[-1]`.
    """
    step, are_read = subject.attempt(), list[bool]()
    with suppress(Exception):  # another probe tells
        step = subject.backward(subject.batches[0])
    for op in step.record.named(*RECURRENT):
        layer = op.module
        if not isinstance(layer, nn.RNNBase) or not layer.bidirectional:
            continue
        last = layer.num_layers - 1
        recurs, reads = ([_learns(layer, f"weight_{part}_l{last}{end}") for end in _ENDS] for part in ("hh", "ih"))
        if sum(recurs) == 1:
            number = recurs.index(False)
            unread = ("forward", "backward")[number]
            message = f"the {unread} direction of the last layer gets no gradient: nothing reads its results"
            if reads[number]:
                message = f"the {unread} direction has read one step alone where its results are read"
            yield Finding(UNREAD_DIRECTION, _reader(step.record, op) or op.place, message, _FIX)
            return
        are_read.append(all(recurs))  # not so if the backward pass failed
    if are_read and all(are_read):
        yield "bidirectional networks are read where both directions have seen the sequence"


PROBE = Probe(look=directions, defects=(UNREAD_DIRECTION,), is_light=True)


def _learns(layer: nn.Module, name: str) -> bool:
    gradient = getattr(layer, name).grad
    return gradient is not None and bool(gradient.any())


def _reader(record: Record, op: Op) -> Place | None:
    """The first line that takes a part of the results."""
    todo, seen = list[Tensor](op.outputs), set[int]()
    while todo:
        for taker in record.takers(todo.pop(0)):
            if taker.name in _PARTS:
                return taker.place
            outputs = [leaf for leaf in taker.outputs if leaf.requires_grad and id(leaf) not in seen]
            todo, seen = [*todo, *outputs], seen | set(map(id, outputs))
    return None
