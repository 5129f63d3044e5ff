"""Bidirectional networks of which one direction is not read, or for one step only."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from torch import Tensor, nn

from playbook.doctor.findings import Defect, Finding
from playbook.doctor.record import RECURRENT, Op, Record
from playbook.doctor.subject import Subject

UNREAD_DIRECTION = Defect(
    "unread-direction",
    "warning",
    "Half of the network's work is lost: what is read knows one step of the sequence, or one direction.",
)
LIGHT = True
_STEPWISE = ("linear", "dropout", "relu", "gelu", "tanh", "layer_norm")
_FIX = "torch.cat([h_n[-2], h_n[-1]], dim=1)  # the last states of both directions"


def directions(subject: Subject) -> Iterator[Finding | str]:
    """Looks for `out[:, -1]` of a bidirectional LSTM or GRU: its backward half has read the last step alone.

    What has read all steps is at the first one, and in h_n (torch's documentation of nn.LSTM, "Outputs"). Sequences
    that are taken whole, averaged or cut to one half of the features are left alone, as are packed ones. Another sign
    is a direction without a gradient, as in `h_n[-1]`, which is the backward half alone.
    """
    if (finding := _unlearnt(subject)) is not None:
        yield finding
        return
    record, is_found = subject.attempt().record, False
    for op in record.named(*RECURRENT):
        if len(op.args) != 9 or not op.args[7] or op.out is None:  # packed ones have other arguments
            continue
        is_found, axis, states = True, int(bool(op.args[8])), op.outputs[0]
        takers = list(_readers(record, states))
        if states.shape[axis] > 1 and takers and all(_takes_last(taker, axis, states.shape[axis]) for taker in takers):
            half = states.shape[2] // 2
            message = (
                f"{half} of the {2 * half} features at the last of {states.shape[axis]} steps have read that one alone"
            )
            yield Finding(UNREAD_DIRECTION, takers[0].place, message, _FIX)
            return
    if is_found:
        yield "bidirectional networks are read where both directions have seen the sequence"


def _unlearnt(subject: Subject) -> Finding | None:
    """A finding if one direction of a last layer gets no gradient, and the other one does."""
    with suppress(Exception):  # another probe tells
        record = subject.backward(subject.batches[0]).record
        for op in record.named(*RECURRENT):
            layer = op.module
            if not isinstance(layer, nn.RNNBase) or not layer.bidirectional:
                continue
            names = [f"weight_ih_l{layer.num_layers - 1}{suffix}" for suffix in ("", "_reverse")]
            has_gradient = [grad is not None and bool(grad.any()) for grad in (getattr(layer, n).grad for n in names)]
            if sum(has_gradient) == 1:
                unread = "forward" if has_gradient[1] else "backward"
                message = f"the {unread} direction of the last layer gets no gradient: nothing reads its results"
                places = [taker.place for taker in record.takers(op.outputs[1]) if taker.name == "__getitem__"]
                return Finding(UNREAD_DIRECTION, next(iter(places), op.place), message, _FIX)
    return None


def _readers(record: Record, states: Tensor) -> Iterator[Op]:
    """The calls that take states, or what is computed of each step alone."""
    for op in record.takers(states):
        if op.name in _STEPWISE and op.outputs[0].shape[:2] == states.shape[:2]:
            yield from _readers(record, op.outputs[0])
        elif op.outputs:
            yield op


def _takes_last(op: Op, axis: int, length: int) -> bool:
    """Whether a call takes all features of the last step."""
    if op.name != "__getitem__":
        return False
    index: Any = op.args[1] if isinstance(op.args[1], tuple) else (op.args[1],)
    if len(index) <= axis or any(isinstance(part, Tensor | list) for part in index):
        return False
    others = [part for number, part in enumerate(index) if number != axis]
    return index[axis] in (-1, length - 1) and all(part == slice(None) for part in others)
