"""Terms of a loss without a gradient for the weights that the next step changes."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import groupby
from typing import Any
from unittest import mock

from torch import Tensor
from torch.optim import Optimizer

from torchdoctor import source
from torchdoctor.findings import Defect, Evidence, Finding, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running.graph import leaves, maker, nodes
from torchdoctor.running.losses import summands
from torchdoctor.running.record import Op, Record
from torchdoctor.running.subject import Subject
from torchdoctor.running.training import noting_losses, weights_of

IDLE_LOSS_TERM = Defect(
    "idle-loss-term",
    "critical",
    "The network that should learn from this term learns nothing from it.",
    explains=("detached-graph",),
    shown_by=Evidence("measured", "the graph of each loss was followed to the weights that the next step changes"),
)
_BATCHES = 4  # optimizers may take turns

Event = Tensor | Optimizer  # a loss that goes backward, or a step


def idle_terms(subject: Subject) -> Iterator[Finding | str]:
    """Runs steps with several optimizers: each loss goes backward, and what steps before the next loss should use it.

    A term is idle if its value comes from weights that step next, by way of another optimizer's network, and its graph
    ends in none of them: `critic(fake.detach())` in the loss of the generator. Terms that come from no weights of the
    next step, and losses of several networks that all step, are left alone.
    """
    if subject.model.automatic_optimization or len(subject.trainer.optimizers) < 2:
        return
    num_terms = 0
    for number, batch in enumerate(subject.batches[:_BATCHES]):
        record, events = _followed(subject, batch, number)
        for losses, stepping in _rounds(events):
            moved = set().union(*map(weights_of, stepping))
            others = set().union(*map(weights_of, subject.trainer.optimizers)) - moved
            for term in (term for loss in losses for term in summands(record, loss)):
                kin = record.ancestors(term, lambda op, _: not op.takes_shape_alone)
                if kin.isdisjoint(moved) or kin.isdisjoint(others):
                    continue
                num_terms += 1
                if _ends(term).isdisjoint(moved):
                    yield _finding(subject, record, term, moved, kin)
                    return
    if num_terms:
        yield "each term of a loss moves weights of the network that its step trains"


PROBE = Probe(look=idle_terms, defects=(IDLE_LOSS_TERM,), needs=(Need.BATCHES, Need.WEIGHTS))


def _followed(subject: Subject, batch: Any, number: int) -> tuple[Record, list[Event]]:
    """The calls of a step, and its losses and the optimizers' steps in order; the weights stay."""
    events: list[Event] = []

    def noting(optimizer: Optimizer) -> Any:
        def step(closure: Any = None, *_: Any, **__: Any) -> Any:
            result = closure() if callable(closure) else None
            events.append(optimizer)
            return result

        return step

    with ExitStack() as stack:
        stack.enter_context(subject.unchanged())
        stack.enter_context(subject.not_optimized())
        stack.enter_context(noting_losses(subject.model, events.append))
        for optimizer in subject.trainer.optimizers:
            stack.enter_context(mock.patch.object(optimizer, "step", noting(optimizer)))
        step = subject.record(batch, index=number)
    return step.checked().record, events


def _rounds(events: list[Event]) -> Iterator[tuple[list[Tensor], list[Optimizer]]]:
    """Losses that go backward one after the other, with the steps that follow."""
    losses: list[Tensor] = []
    for is_loss, some in groupby(events, key=lambda event: isinstance(event, Tensor)):
        if is_loss:
            losses = [event for event in some if isinstance(event, Tensor)]
        elif losses:
            yield losses, [event for event in some if isinstance(event, Optimizer)]


def _ends(tensor: Tensor) -> set[int]:
    """The weights at which a tensor's graph ends, by identity."""
    return set(map(id, leaves(nodes(maker(tensor)))))


def _finding(subject: Subject, record: Record, term: Tensor, moved: set[int], kin: set[int]) -> Finding:
    names = [name for name, weight in subject.model.named_parameters() if id(weight) in moved & kin]
    owners = dict.fromkeys(name.partition(".")[0] for name in names)
    producer, cut = record.producer(term), _cut(record, kin, moved)
    where = f" of line {producer.place.line}" if producer is not None and producer.place is not None else ""
    network = " and ".join(owners) or "the network"
    message = f"the term{where} gives no gradient to {network}, which the next step changes: its graph ends before"
    place = cut or (producer.place if producer is not None else None)
    code = place.code if place is not None else ""
    fix = code.replace(".detach()", "") if ".detach()" in code else "# leave out what cuts the graph: detach, no_grad"
    return Finding(IDLE_LOSS_TERM, place, message, fix)


def _cut(record: Record, kin: set[int], moved: set[int]) -> Place | None:
    """The last line at which the way from these weights to a term loses its graph."""
    cuts = [op for op in record.ops if _loses(op, kin, moved)]
    if not cuts:
        return None
    return (None if cuts[-1].grad else source.without_gradients(cuts[-1].places)) or cuts[-1].place


def _loses(op: Op, kin: set[int], moved: set[int]) -> bool:
    if kin.isdisjoint(map(id, op.outputs)) or any(out.requires_grad for out in op.outputs):
        return False
    return any(id(leaf) in moved or not _ends(leaf).isdisjoint(moved) for leaf in op.inputs)
