"""Autograd graphs that are retained from step to step."""

import ast
import gc
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import lightning.pytorch as pl
from torch import Tensor

from torchdoctor import source
from torchdoctor.findings import Defect, Evidence, Finding, NotLookedAt, Place
from torchdoctor.probe import Need, Probe
from torchdoctor.running.graph import leaves, maker, nodes
from torchdoctor.running.record import tensors
from torchdoctor.running.rehearsal import Watch, rehearsal_notes
from torchdoctor.running.subject import Subject
from torchdoctor.running.unregistered import is_plain

GRAPH_RETAINED = Defect(
    "graph-retained",
    "critical",
    "Memory grows with every step, until it is full or what holds the graphs is let go.",
    explains=("crash",),
    shown_by=Evidence("measured", "the living nodes of autograd's graph were counted after each of six steps"),
)
_STEPS = 6


def retained(subject: Subject) -> Iterator[Finding | str | NotLookedAt]:
    """Counts the graph nodes that live tensors still reach after each of six steps.

    A list of losses and a running average of them both grow at every step; counting tensors would miss the second.
    Graphs that do not lead to a weight, as of inputs that were optimised, hold nothing of the step.
    """
    watch = rehearsal_notes(subject, _Watch)
    counts = watch.counts[1:]  # the first step makes what lasts
    if len(counts) < 3:
        yield NotLookedAt(GRAPH_RETAINED, "the training has too few steps to count graphs after each")
        return
    if not all(later > earlier for earlier, later in pairwise(counts)):
        if counts[-1] > counts[0] and all(later >= earlier for earlier, later in pairwise(counts)):
            yield NotLookedAt(GRAPH_RETAINED, "graphs grow in some of six steps, and in others they do not")
            return
        yield "no graphs pile up from step to step"
        return
    name, place = watch.holder
    message = (
        f"{name or 'a tensor'} keeps its graph: {counts[0]} nodes after 2 steps, {counts[-1]} after {len(watch.counts)}"
    )
    where = f"self.{name}" if name else "what outlives the step"
    yield Finding(GRAPH_RETAINED, place, message, f"loss.detach()  # each tensor that goes into {where}")


class _Watch(Watch):
    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.weights = {id(parameter) for parameter in subject.model.parameters()}
        self.counts: list[int] = []
        self.holder: tuple[str, Place | None] = "", None
        self._known = _living_tensors()
        gc.freeze()  # what is there already is not searched after every step

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        del outputs
        if len(self.counts) == _STEPS:
            return
        gc.collect()
        graphs = [nodes(end) for end in {maker(tensor) for tensor in (*self._known, *_living_tensors())}]
        of_steps = [graph for graph in graphs if not self.weights.isdisjoint(map(id, leaves(graph)))]
        self.counts.append(len(set().union(*of_steps)))
        self.holder = _holder(self.subject)  # before the end of an epoch empties it


PROBE = Probe(
    look=retained, defects=(GRAPH_RETAINED,), needs=(Need.LIGHTNING,), watch=_Watch, by_rehearsal=(GRAPH_RETAINED,)
)


def _living_tensors() -> list[Tensor]:
    """Those that the collector knows; by their type, as `isinstance` fails on a proxy of what has ended."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), Tensor)]


def _holder(subject: Subject) -> tuple[str, Place | None]:
    """The attribute that holds tensors with a graph, and the line outside of __init__ that gives it them."""
    known: list[tuple[str, object]] = [*subject.model.named_modules()]
    known += [("", subject.data)] if subject.data is not None else []
    beside = [(path, thing) for path, owner in known for thing in vars(owner).values() if is_plain(thing)]
    for path, owner in (*known, *beside):
        for name, value in vars(owner).items():
            if not name.startswith("_") and any(tensor.grad_fn is not None for tensor in tensors(value)):
                assignments = (place for place, node in source.in_methods(owner) if _gives(node, name))
                place = next(assignments, None) or source.assignment(owner, name)
                if place is not None or not path:
                    return name, place
                methods = source.in_methods(subject.model)
                calls = ((place, ast.unparse(node.func)) for place, node in methods if isinstance(node, ast.Call))
                used = (place for place, called in calls if called.startswith(f"self.{path}"))
                return path, next(used, None)  # a metric of a library's
    return "", source.definition(type(subject.model).training_step)


def _gives(node: ast.AST, name: str) -> bool:
    """Whether a statement assigns an attribute or something in it, or gives one to a method of it."""
    if isinstance(node, ast.Expr):
        is_given = isinstance(node.value, ast.Call) and bool(node.value.args)
        return is_given and ast.unparse(node).startswith(f"self.{name}")
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    return any(ast.unparse(target).startswith(f"self.{name}") for target in targets)
