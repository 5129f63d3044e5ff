"""Graphs that are kept from step to step."""

import ast
import gc
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import lightning.pytorch as pl
from torch import Tensor, nn

from playbook.doctor import source
from playbook.doctor.findings import Defect, Evidence, Finding, Place
from playbook.doctor.record import tensors
from playbook.doctor.subject import Subject, Watch

GRAPH_RETAINED = Defect(
    "graph-retained",
    "critical",
    "Memory grows with every step until it is full.",
    explains=("crash",),
    shown_by=Evidence("measured", "the living nodes of autograd's graph were counted after each of six steps"),
)
DEFECTS = (GRAPH_RETAINED,)
_STEPS = 6


def retained(subject: Subject) -> Iterator[Finding | str]:
    """Counts, after each of six steps, the nodes of autograd's graphs that living tensors still lead to.

    A list of losses and a running average of them both grow at every step; counting tensors would miss the second.
    Graphs that do not lead to a weight, as of inputs that were optimised, hold nothing of the step.
    """
    watch = subject.watch(_Watch)
    counts = watch.counts[1:]  # the first step makes what lasts
    if len(counts) < 3:
        return
    if not all(later > earlier for earlier, later in pairwise(counts)):
        yield "no graph outlives its step"
        return
    name, place = _holder(subject)
    message = (
        f"{name or 'a tensor'} keeps its graph: {counts[0]} nodes after 2 steps, {counts[-1]} after {len(watch.counts)}"
    )
    yield Finding(GRAPH_RETAINED, place, message, f"self.{name or 'losses'}…(loss.detach())")


class _Watch(Watch):
    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.weights = {id(parameter) for parameter in subject.model.parameters()}
        self.counts: list[int] = []
        self._known = _living_tensors()
        gc.freeze()  # what is there already is not searched after every step

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        del outputs
        if len(self.counts) == _STEPS:
            return
        gc.collect()
        nodes: set[Any] = set()
        for end in {tensor.grad_fn for tensor in (*self._known, *_living_tensors())} - {None}:
            graph = _graph(end)
            if any(id(getattr(node, "variable", None)) in self.weights for node in graph):
                nodes |= graph
        self.counts.append(len(nodes))


WATCH = _Watch


def _graph(end: Any) -> set[Any]:
    nodes, todo = set(), [end]
    while todo:
        node = todo.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            todo += [following for following, _ in node.next_functions]
    return nodes


def _living_tensors() -> list[Tensor]:
    """Those that the collector knows; by their type, as `isinstance` fails on a proxy of what has ended."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), Tensor)]


def _holder(subject: Subject) -> tuple[str | None, Place | None]:
    """The attribute that holds tensors with a graph, and the line outside of __init__ that gives it them."""
    known = [owner for owner in (*subject.model.modules(), subject.data) if owner is not None]
    for owner in [*known, *(thing for holder in known for thing in _beside(holder))]:
        for name, value in vars(owner).items():
            if not name.startswith("_") and any(tensor.grad_fn is not None for tensor in tensors(value)):
                return name, _given(owner, name)
    return None, source.definition(type(subject.model).training_step)


def _beside(owner: object) -> list[object]:
    """Plain objects of the user's classes among an object's attributes."""
    held = vars(owner).values()
    return [
        thing
        for thing in held
        if not isinstance(thing, nn.Module) and hasattr(thing, "__dict__") and source.classes_of(thing)
    ]


def _given(owner: object, name: str) -> Place | None:
    for place, node in source.in_methods(owner):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr) and _gives(node, name):
            return place
    return source.assignment(owner, name)


def _gives(node: ast.Assign | ast.AugAssign | ast.Expr, name: str) -> bool:
    if isinstance(node, ast.Expr):
        text = ast.unparse(node)
        return text.startswith(f"self.{name}") and any(
            f".{verb}(" in text for verb in ("append", "extend", "add", "update")
        )
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(ast.unparse(target).startswith(f"self.{name}") for target in targets)
